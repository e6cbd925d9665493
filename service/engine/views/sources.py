"""Sources as Redis remembers them: where their watch stands, what is wrong, what they hold and why.
Also those that nobody declares any more: what is kept of them stays until a person drops it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.views.reading import batch, moment, node_options, number, text, texts
from service.policy.guard import parted

_GLOB: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]^-"})
_KINDS: Final = ("source:", "inventory:")
_SCAN: Final = 5000
_NAMED: Final = 5


class StrandView(msgspec.Struct, frozen=True, kw_only=True):
    """What is listed and watched together. The only strand of an undivided source has no name."""

    name: str
    listed: datetime | None
    resource_version: str
    owned: int | None
    held: int
    held_why: str


class SourceView(msgspec.Struct, frozen=True, kw_only=True):
    """One source. `listed` is the time of its oldest latest list, `resource_version` the newest that was seen.

    `swept` is when the last whole pass of its sweep began, and `orphans` how many that found; None for one without.

    `resource` and `mode` are those of the settings; of a source that these do not declare, what was last watched.
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
    strands: list[StrandView]

    @property
    def troubled(self) -> bool:
        return bool(self.problem or self.held)


class HeldObjects(msgspec.Struct, frozen=True, kw_only=True):
    """What a source does not believe. `reasons` says how many for which, `names` are a few of them."""

    count: int
    reasons: dict[str, int]
    names: list[str]


class Keepsakes(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a source's objects: in all, and those that are gone while their deletion may be open."""

    records: int
    gone: int
    unreadable: int


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What a source was last about, whatever the settings say now. `namespaces` are those in which it may have marked
    something, `*` for all; empty where that is not remembered."""

    source: str
    cluster_uid: str
    resource: str
    namespaces: frozenset[str] = frozenset()


async def watched_before(installation: Installation) -> list[Watched]:
    """Of every source that is remembered and was ever listed. Walks all keys of the server."""
    names = sorted(await _remembered(installation))
    reads = [("HGETALL", installation.keys.of(0, f"source:{name}")) for name in names]
    answers = [texts(answer) for answer in await batch(installation.caller, reads)]
    found = [
        Watched(
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
    """Those of the settings, in one round trip."""
    return await _views(installation, installation.settings.sources)


async def every_source(installation: Installation) -> list[SourceView]:
    """Those of the settings, and then those that are only remembered. Walks all keys of the server."""
    declared = installation.settings.sources
    others = sorted(await _remembered(installation) - set(declared))
    return await _views(installation, [*declared, *others])


async def held_objects(installation: Installation, source: str) -> HeldObjects:
    """Read record by record; objects with our finalizer are not recorded, of these the source's state tells."""
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
        for strand in view.strands:
            if strand.held and view.mode != "observe":
                reasons[strand.held_why] += strand.held
    return HeldObjects(count=reasons.total(), reasons=dict(reasons), names=names)


async def keepsakes(installation: Installation, source: str) -> Keepsakes:
    seen, gone, unreadable = set[str](), 0, 0
    async for page in Inventory(installation, source).scan():
        for uid, record in page:
            if uid not in seen:
                seen.add(uid)
                gone += record is not None and record.gone > 0
                unreadable += record is None
    return Keepsakes(records=len(seen), gone=gone, unreadable=unreadable)


async def _views(installation: Installation, names: Iterable[str]) -> list[SourceView]:
    wanted = list(names)
    keys = [installation.keys.of(0, f"source:{name}") for name in wanted]
    answers = await batch(installation.caller, [("HGETALL", key) for key in keys])
    return [_view(installation, name, texts(answer)) for name, answer in zip(wanted, answers, strict=True)]


def _view(installation: Installation, name: str, facts: Mapping[str, str]) -> SourceView:
    settings = installation.settings
    declared = settings.sources.get(name)
    cluster = "" if declared is None else declared.cluster or next(iter(settings.clusters), "")
    strands = [_strand(label, facts) for label in _labels(facts)]
    problems = [facts[field] for field in sorted(facts) if _base(field) == "problem"]
    since = [number(value) for field, value in facts.items() if _base(field) == "problem_since"]
    listed = [strand.listed for strand in strands if strand.listed is not None]
    owned = [strand.owned for strand in strands if strand.owned is not None]
    versions = [strand.resource_version for strand in strands if strand.resource_version]
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
        problem_since=moment(min(since, default=0)),
        held=sum(strand.held for strand in strands),
        held_why=next((strand.held_why for strand in strands if strand.held), ""),
        guard_tripped=moment(facts.get("guard_tripped")),
        guard_why=facts.get("guard_why", ""),
        swept=moment(facts.get("sweep_at")),
        orphans=int(number(facts["sweep_found"])) if "sweep_found" in facts else None,
        strands=strands,
    )


def _strand(label: str, facts: Mapping[str, str]) -> StrandView:
    tail = f"@{label}" if label else ""
    owned = facts.get(f"owned.{label}" if label else "owned")
    return StrandView(
        name=label,
        listed=moment(facts.get(f"listed_at{tail}")),
        resource_version=facts.get(f"resource_version{tail}", ""),
        owned=None if owned is None else int(number(owned)),
        held=int(number(facts.get(f"held{tail}"))),
        held_why=facts.get(f"held_why{tail}", ""),
    )


def _labels(facts: Mapping[str, str]) -> list[str]:
    """Which strands there are: each has been listed, or holds something."""
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
    """Nothing lists them, so the keys themselves are looked through."""
    shard = installation.shards[0]
    options = await node_options(shard)
    pattern = f"{shard.stem.translate(_GLOB)}[si]*"
    found, cursor = set[str](), 0
    while True:
        cursors, keys = await shard.caller.command("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN, **options)
        # A Cluster's client answers with a cursor for each node that was asked.
        cursor = int(next(iter(cursors.values())) if isinstance(cursors, dict) else cursors)
        for key in keys:
            name = text(key).removeprefix(shard.stem)
            found |= {name.removeprefix(kind) for kind in _KINDS if name.startswith(kind)}
        if not cursor:
            # The guard counts orphans under a name beside their source's, which is no source.
            return {name for name in found if not (parted(name)[1] and parted(name)[0] in found)}
