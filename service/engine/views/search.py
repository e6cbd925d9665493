"""Search for deletions by the beginning of an object's uid, or by its kind and name.
There is no index by name: ids, which begin with cluster, resource and uid, are scanned and filtered by the server, and
only the records of matches are read. A scan misses nothing that exists all the time."""

from collections.abc import AsyncIterator
from typing import Any, Final, Literal

import msgspec

from service.contract.resource_names import fits_kind
from service.engine.batch_reads import PAGE, batch, chunks, records, text
from service.engine.installation import Installation
from service.engine.shard import Shard
from service.engine.views.deletions import DeletionView, deletion_view
from service.engine.views.held import INDEXES

_STEP: Final = 1000
_GLOB: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]^-"})
_FIELDS: Final = ("name", "namespace", "event")


class DeletionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Empty or None fields match everything. `uid` is the beginning of the uid."""

    uid: str = ""
    kind: str = ""
    name: str = ""
    namespace: str | None = None
    cluster: str | None = None

    @property
    def pattern(self) -> str:
        """Glob pattern of matching ids; of the kind only the beginning, which singular and plural share."""
        cluster = "*" if self.cluster is None else self.cluster.translate(_GLOB)
        kind = self.kind.casefold().partition(".")[0][:-1].translate(_GLOB)
        return f"{cluster}/{kind}*/{self.uid.translate(_GLOB)}*/*"

    def fits_id(self, deletion: str) -> bool:
        """For an id that matches the pattern."""
        return not self.kind or fits_kind(self.kind, deletion.split("/")[1])

    def fits_names(self, namespace: str, name: str) -> bool:
        return self.name in ("", name) and self.namespace in (None, namespace)


async def find_deletions(
    installation: Installation, sought: DeletionQuery, among: Literal["open", "finished"]
) -> list[DeletionView]:
    """All matches, ordered by publication time."""
    found = list[DeletionView]()
    for shard in installation.shards:
        async for ids in _ids(shard, among, sought):
            fitting = await _named(shard, ids, sought)
            kept = await records(shard.caller, [f"{shard.stem}deletion:{one}" for one in fitting])
            found += [deletion_view(shard.number, one, record) for one, record in zip(fitting, kept, strict=True)]
    return sorted(found, key=lambda view: view.published_at.timestamp() if view.published_at else 0.0)


async def held_jobs(installation: Installation, deletion: str) -> list[str]:
    """The ids of the jobs of a deletion that are held or waiting."""
    shard, found = installation.shard_of(deletion), set[str]()
    for index in INDEXES:
        async for page in _walk(shard, index, f"job:{deletion.translate(_GLOB)}#*"):
            found.update(name.removeprefix("job:") for name in page)
    return sorted(found)


async def _ids(shard: Shard, among: str, sought: DeletionQuery) -> AsyncIterator[list[str]]:
    seen = set[str]()
    async for page in _walk(shard, among, sought.pattern):
        fresh = [one for one in dict.fromkeys(page) if one.count("/") == 3 and one not in seen and sought.fits_id(one)]
        seen.update(fresh)
        yield fresh


async def _named(shard: Shard, ids: list[str], sought: DeletionQuery) -> list[str]:
    if not sought.name and sought.namespace is None:
        return ids
    found = list[str]()
    for part in chunks(ids, PAGE):
        answers = await batch(shard.caller, [("HMGET", f"{shard.stem}deletion:{one}", *_FIELDS) for one in part])
        found += [one for one, row in zip(part, answers, strict=True) if sought.fits_names(*_names(row))]
    return found


def _names(row: list[bytes | None]) -> tuple[str, str]:
    """Namespace and name. Before planning, a record has its event as one JSON text."""
    name, namespace, event = row
    if event is not None:
        known = msgspec.json.decode(event, type=dict[str, Any])
        return str(known.get("namespace", "")), str(known.get("name", ""))
    return text(namespace or b""), text(name or b"")


async def _walk(shard: Shard, name: str, pattern: str) -> AsyncIterator[list[str]]:
    """The members of a sorted set that match a pattern; some may be repeated."""
    cursor = 0
    while True:
        command = ("ZSCAN", shard.stem + name, cursor, "MATCH", pattern, "COUNT", _STEP)
        cursor, page = await shard.caller.command(*command)
        yield [text(member) for member, _ in page]
        if not cursor:
            return
