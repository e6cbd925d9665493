"""Finds deletions by what people know of them: the start of an object's uid, or its kind and name.
There is no index by name: ids are walked in batches and filtered by the server, since they begin with cluster, resource
and uid. Records are read only of those that are left. A walk misses nothing that is there all the time."""

from collections.abc import AsyncIterator
from typing import Any, Final, Literal

import msgspec

from service.contract.resource_names import fits_kind
from service.engine.engine import Shard
from service.engine.installation import Installation
from service.engine.views.deletions import DeletionView, deletion_view
from service.engine.views.held import INDEXES
from service.engine.views.reading import PAGE, batch, chunks, records, text

_STEP: Final = 1000
_GLOB: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]^-"})
_FIELDS: Final = ("name", "namespace", "event")


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an object; what is empty, or None, is not asked about. `uid` is how its uid begins."""

    uid: str = ""
    kind: str = ""
    name: str = ""
    namespace: str | None = None
    cluster: str | None = None

    @property
    def pattern(self) -> str:
        """The glob that ids fit, part by part; of the kind only how it begins, as its plural does as well."""
        cluster = "*" if self.cluster is None else self.cluster.translate(_GLOB)
        kind = self.kind.casefold().partition(".")[0][:-1].translate(_GLOB)
        return f"{cluster}/{kind}*/{self.uid.translate(_GLOB)}*/*"

    def fits_id(self, deletion: str) -> bool:
        """Of an id that fits the pattern."""
        return not self.kind or fits_kind(self.kind, deletion.split("/")[1])

    def fits_names(self, namespace: str, name: str) -> bool:
        return self.name in ("", name) and self.namespace in (None, namespace)


async def find_deletions(
    installation: Installation, sought: Sought, among: Literal["open", "finished"]
) -> list[DeletionView]:
    """All that fit, those that were published first at the front."""
    found = list[DeletionView]()
    for shard in installation.shards:
        async for ids in _ids(shard, among, sought):
            fitting = await _named(shard, ids, sought)
            kept = await records(shard.caller, [f"{shard.stem}deletion:{one}" for one in fitting])
            found += [deletion_view(shard.number, one, record) for one, record in zip(fitting, kept, strict=True)]
    return sorted(found, key=lambda view: view.published_at.timestamp() if view.published_at else 0.0)


async def held_jobs(installation: Installation, deletion: str) -> list[str]:
    """The ids of the jobs of a deletion that are held, or wait by themselves."""
    shard, found = installation.shard_of(deletion), set[str]()
    for index in INDEXES:
        async for page in _walk(shard, index, f"job:{deletion.translate(_GLOB)}#*"):
            found.update(name.removeprefix("job:") for name in page)
    return sorted(found)


async def _ids(shard: Shard, among: str, sought: Sought) -> AsyncIterator[list[str]]:
    seen = set[str]()
    async for page in _walk(shard, among, sought.pattern):
        fresh = [one for one in dict.fromkeys(page) if one.count("/") == 3 and one not in seen and sought.fits_id(one)]
        seen.update(fresh)
        yield fresh


async def _named(shard: Shard, ids: list[str], sought: Sought) -> list[str]:
    if not sought.name and sought.namespace is None:
        return ids
    found = list[str]()
    for part in chunks(ids, PAGE):
        answers = await batch(shard.caller, [("HMGET", f"{shard.stem}deletion:{one}", *_FIELDS) for one in part])
        found += [one for one, row in zip(part, answers, strict=True) if sought.fits_names(*_names(row))]
    return found


def _names(row: list[bytes | None]) -> tuple[str, str]:
    """Namespace and name; a record that is not planned yet keeps its event as one text."""
    name, namespace, event = row
    if event is not None:
        known = msgspec.json.decode(event, type=dict[str, Any])
        return str(known.get("namespace", "")), str(known.get("name", ""))
    return text(namespace or b""), text(name or b"")


async def _walk(shard: Shard, name: str, pattern: str) -> AsyncIterator[list[str]]:
    """The members of a sorted set that fit a pattern, some of them perhaps twice."""
    cursor = 0
    while True:
        command = ("ZSCAN", shard.stem + name, cursor, "MATCH", pattern, "COUNT", _STEP)
        cursor, page = await shard.caller.command(*command)
        yield [text(member) for member, _ in page]
        if not cursor:
            return
