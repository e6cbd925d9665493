"""Queries of sources: state of the watch, problems, and held objects.
Sources that are no longer declared are included: their data stays until an operator drops it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from service.engine.batch_reads import batch, node_options, number, text, texts, to_datetime
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.policy.guard import split_guard_name

_GLOB: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]^-"})
_KINDS: Final = ("source:", "inventory:")
_SCAN: Final = 5000
_NAMED: Final = 5


class ListWatchView(msgspec.Struct, frozen=True, kw_only=True):
    """One list and watch of a source. The only one of an undivided source has no name."""

    name: str
    listed: datetime | None
    resource_version: str
    owned: int | None
    held: int
    held_why: str


class SourceView(msgspec.Struct, frozen=True, kw_only=True):
    """One source. `listed` is the oldest time of the last lists, `resource_version` the newest one seen.

    `swept` is when the last complete pass of its sweep began, and `orphans` how many it found; None without a sweep.

    `resource` and `mode` are those of the settings; for a source that is not declared, those that were last watched.
    """

    name: str
    declared: bool
    resource: str
    cluster: str
    cluster_uid: str
    mode: str
    owned: int | None
    listed: datetime | None
    resource_version: str
    problem: str
    problem_since: datetime | None
    held: int
    held_why: str
    guard_tripped: datetime | None
    guard_why: str
    swept: datetime | None
    orphans: int | None
    lists: list[ListWatchView]

    @property
    def troubled(self) -> bool:
        return bool(self.problem or self.held)


class HeldObjects(msgspec.Struct, frozen=True, kw_only=True):
    """Objects whose absence is not accepted. `reasons` has the numbers by reason, `names` a few of the objects."""

    count: int
    reasons: dict[str, int]
    names: list[str]


class InventoryCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of records of a source's objects: all, those of deleted objects, and those that can't be decoded."""

    records: int
    gone: int
    unreadable: int


class WatchedResource(msgspec.Struct, frozen=True, kw_only=True):
    """What a source was last about, whatever the settings say now. `namespaces` are those in which it may have marked
    something, `*` for all; empty where that is not remembered."""

    source: str
    cluster_uid: str
    resource: str
    namespaces: frozenset[str] = frozenset()


async def watched_before(installation: Installation) -> list[WatchedResource]:
    """Of every source that is remembered and was ever listed. Walks all keys of the server."""
    names = sorted(await _remembered(installation))
    reads = [("HGETALL", installation.keys.of(0, f"source:{name}")) for name in names]
    answers = [texts(answer) for answer in await batch(installation.caller, reads)]
    found = [
        WatchedResource(
            source=name,
            cluster_uid=facts.get("cluster", ""),
            resource=facts.get("resource", ""),
            namespaces=frozenset(
                one for field, value in facts.items() if _base(field) == "namespaces" for one in _names(value)
            ),
        )
        for name, facts in zip(names, answers, strict=True)
    ]
    return [one for one in found if one.cluster_uid and one.resource]


async def declared_sources(installation: Installation) -> list[SourceView]:
    """The sources of the settings, in one round trip."""
    return await _views(installation, installation.settings.sources)


async def every_source(installation: Installation) -> list[SourceView]:
    """The sources of the settings, and those that only have data in Redis. Scans all keys of the server."""
    declared = installation.settings.sources
    others = sorted(await _remembered(installation) - set(declared))
    return await _views(installation, [*declared, *others])


async def held_objects(installation: Installation, source: str) -> HeldObjects:
    """Read from the records. Objects with our finalizer have none; they are counted in the source's state."""
    reasons, names, seen = Counter[str](), list[str](), set[str]()
    async for page in Inventory(installation, source).scan():
        for uid, record in page:
            if record is None or not record.held or uid in seen:
                continue
            seen.add(uid)
            reasons[record.held] += 1
            if len(names) < _NAMED:
                names.append(f"{record.namespace}/{record.name}" if record.namespace else record.name)
    if not reasons:
        (view,) = await _views(installation, [source])
        for one in view.lists:
            if one.held and view.mode != "observe":
                reasons[one.held_why] += one.held
    return HeldObjects(count=reasons.total(), reasons=dict(reasons), names=names)


async def inventory_counts(installation: Installation, source: str) -> InventoryCounts:
    seen, gone, unreadable = set[str](), 0, 0
    async for page in Inventory(installation, source).scan():
        for uid, record in page:
            if uid not in seen:
                seen.add(uid)
                gone += record is not None and record.gone > 0
                unreadable += record is None
    return InventoryCounts(records=len(seen), gone=gone, unreadable=unreadable)


async def _views(installation: Installation, names: Iterable[str]) -> list[SourceView]:
    wanted = list(names)
    keys = [installation.keys.of(0, f"source:{name}") for name in wanted]
    answers = await batch(installation.caller, [("HGETALL", key) for key in keys])
    return [_view(installation, name, texts(answer)) for name, answer in zip(wanted, answers, strict=True)]


def _view(installation: Installation, name: str, facts: Mapping[str, str]) -> SourceView:
    settings = installation.settings
    declared = settings.sources.get(name)
    cluster = "" if declared is None else declared.cluster or next(iter(settings.clusters), "")
    lists = [_list_watch(label, facts) for label in _labels(facts)]
    problems = [facts[field] for field in sorted(facts) if _base(field) == "problem"]
    since = [number(value) for field, value in facts.items() if _base(field) == "problem_since"]
    listed = [one.listed for one in lists if one.listed is not None]
    owned = [one.owned for one in lists if one.owned is not None]
    versions = [one.resource_version for one in lists if one.resource_version]
    return SourceView(
        name=name,
        declared=declared is not None,
        resource=declared.resource if declared is not None else facts.get("resource", ""),
        cluster=cluster,
        cluster_uid=facts.get("cluster", ""),
        mode=declared.mode if declared is not None else facts.get("mode", ""),
        owned=sum(owned) if owned else None,
        listed=min(listed, default=None),
        resource_version=max(versions, key=number, default=""),
        problem="; ".join(dict.fromkeys(problems)),
        problem_since=to_datetime(min(since, default=0)),
        held=sum(one.held for one in lists),
        held_why=next((one.held_why for one in lists if one.held), ""),
        guard_tripped=to_datetime(facts.get("guard_tripped")),
        guard_why=facts.get("guard_why", ""),
        swept=to_datetime(facts.get("sweep_at")),
        orphans=int(number(facts["sweep_found"])) if "sweep_found" in facts else None,
        lists=lists,
    )


def _list_watch(label: str, facts: Mapping[str, str]) -> ListWatchView:
    tail = f"@{label}" if label else ""
    owned = facts.get(f"owned.{label}" if label else "owned")
    return ListWatchView(
        name=label,
        listed=to_datetime(facts.get(f"listed_at{tail}")),
        resource_version=facts.get(f"resource_version{tail}", ""),
        owned=None if owned is None else int(number(owned)),
        held=int(number(facts.get(f"held{tail}"))),
        held_why=facts.get(f"held_why{tail}", ""),
    )


def _labels(facts: Mapping[str, str]) -> list[str]:
    """The labels of lists, each of which was listed or has held objects."""
    known = {field.partition("@")[2] for field in facts if _base(field) in ("listed_at", "held")}
    return sorted(known)


def _names(value: str) -> list[str]:
    try:
        return msgspec.json.decode(value, type=list[str])
    except msgspec.MsgspecError:
        return ["*"]


def _base(field: str) -> str:
    return field.partition("@")[0]


async def _remembered(installation: Installation) -> set[str]:
    """Found by scanning the keys, since there is no index."""
    shard = installation.shards[0]
    options = await node_options(shard)
    pattern = f"{shard.stem.translate(_GLOB)}[si]*"
    found, cursor = set[str](), 0
    while True:
        cursors, keys = await shard.caller.command("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN, **options)
        # The Cluster client returns a cursor for each node that was asked.
        cursor = int(next(iter(cursors.values())) if isinstance(cursors, dict) else cursors)
        for key in keys:
            name = text(key).removeprefix(shard.stem)
            found |= {name.removeprefix(kind) for kind in _KINDS if name.startswith(kind)}
        if not cursor:
            # The guard counts orphans under the source's name with a suffix, which is not a source.
            return {name for name in found if not (split_guard_name(name)[1] and split_guard_name(name)[0] in found)}
