"""Finder of the resources with a cluster's tag: by the tagging API, or by describe calls if that is unavailable. Every
resource is confirmed by a describe call and checked for ownership. Concurrent finds share reads and lists, and lists of
a large account continue in the background."""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple

import msgspec
import structlog

from service.sources.capa import Task
from workers.collectors.capa.claim import CapaClaim, OwnerTag
from workers.collectors.capa.kinds import CAPA_KINDS, CONTROLLER_TASK, kinds_of
from workers.collectors.capa.ownership import owner_tag, ownership_objection
from workers.collectors.capa.preconditions import ReadScope, read_scope
from workers.collectors.capa.tagging_api import ids_by_kind, is_unavailable, tagged_arns
from workers.providers.aws.client.background_reads import MAX_WAIT, BackgroundReads, StillRunning
from workers.providers.aws.client.reads_by_id import ReadsById
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.model import AwsClient, AwsResource
from workers.providers.aws.protection import retention_reason

log = structlog.get_logger(__name__)

GATHER_TIME: Final = timedelta(milliseconds=500)
"""How long a read waits for others of its kind. Clusters arrive one by one, as fast as the tagging API responds; read
separately, each would cost as many calls as all of them together."""

TAGGING_API_BACKOFF: Final = timedelta(minutes=5)
"""How long the tagging API is not used after it was unavailable."""

FindMode = Literal["auto", "tagging", "describe"]
IdsByKind = Mapping[str, Mapping[str, OwnerTag]]
"""Ids by kind, each with the tag that identifies its owner."""


class OwnedResource(NamedTuple):
    """An existing resource of the cluster; `claim.by` says by which tag."""

    kind: AwsKind
    claim: CapaClaim
    resource: AwsResource


class UnreadableKind(NamedTuple):
    """A kind that can't be read for lack of permission; `ids` are those that the tagging API named, if it was used."""

    kind: AwsKind
    claim: CapaClaim
    ids: tuple[str, ...]
    error: AwsError


class StillListing(Exception):
    """The list continues in the background; ask again under the same name."""


class FoundResources(msgspec.Struct):
    """`unparsed_arns` can't be parsed; `ambiguous` would be the owner's if its VPC were known; `retained` carries the
    tag of an earlier decision to keep it."""

    owned: list[OwnedResource] = []
    unreadable: list[UnreadableKind] = []
    unparsed_arns: list[str] = []
    ambiguous: list[OwnedResource] = []
    retained: list[OwnedResource] = []


class ResourceFinder:
    """`max_wait` is how long a caller waits for a result."""

    def __init__(self, mode: FindMode, max_wait: timedelta = MAX_WAIT) -> None:
        self._mode = mode
        self._background = BackgroundReads[FoundResources](max_wait)
        self._reads = ReadsById[tuple[ReadScope, str], AwsResource](_read, gather_time=GATHER_TIME)
        self._lists = ReadsById[tuple[ReadScope, str], tuple[AwsResource, ...]](_list, gather_time=GATHER_TIME)
        self._tagging_api_retry_at: dict[ReadScope, float] = {}

    def name(self, before: Iterable[str] = ()) -> str:
        """The one of `before` under which a result is expected here, or a new name."""
        return self._background.name(before)

    async def find(
        self,
        claim: CapaClaim,
        tasks: Collection[Task],
        client: AwsClient,
        *,
        name: str,
    ) -> FoundResources:
        """All calls are made after the first request under that name. `client` is patient, at least beyond what
        a lane has reserved. Raises AwsError if a list would be incomplete, and StillListing."""
        question = claim, tuple(tasks), read_scope(client)
        return await self._asked(name, claim, question, lambda: self._find(claim, tasks, client))

    async def find_by_id(self, claim: CapaClaim, ids: IdsByKind, client: AwsClient, *, name: str) -> FoundResources:
        """The same for known ids: those that exist and are still the owner's."""
        question = claim, ids, read_scope(client)
        return await self._asked(name, claim, question, lambda: _find_by_id(claim, ids, client))

    async def aclose(self) -> None:
        await self._background.aclose()
        await self._reads.aclose()
        await self._lists.aclose()

    async def _asked(
        self, name: str, claim: CapaClaim, question: object, start: Callable[[], Coroutine[Any, Any, FoundResources]]
    ) -> FoundResources:
        try:
            return await self._background.result(name, question, start)
        except StillRunning:
            raise StillListing(
                f"listing goes on: account {claim.account} has many resources in region {claim.scope.region}"
            ) from None

    async def _find(self, claim: CapaClaim, tasks: Collection[Task], client: AwsClient) -> FoundResources:
        finds, wanted = FoundResources(), list[tuple[AwsKind, CapaClaim, dict[str, list[str]] | None]]()
        for own, kinds in _kinds_by_tag(claim, tasks):
            named = None
            if self._mode != "describe" and time.monotonic() >= self._tagging_api_retry_at.get(read_scope(client), 0.0):
                arns = await self._tagged(own, client)
                named = None if arns is None else ids_by_kind(arns, kinds, own, finds.unparsed_arns)
            wanted += [(kind, own, named) for kind in kinds]
        # For both tags at once: they share one list of the account. All are awaited, so that none continues after a
        # failure was reported.
        looks = (self._one(kind, own, client, named) for kind, own, named in wanted)
        for (kind, own, _), found in zip(wanted, await asyncio.gather(*looks, return_exceptions=True), strict=True):
            if isinstance(found, BaseException):
                raise found
            if isinstance(found, UnreadableKind):
                finds.unreadable.append(found)
            else:
                _sort_by_ownership(kind, own, found, finds)
        return finds

    # ---- one kind

    async def _one(
        self, kind: AwsKind, claim: CapaClaim, client: AwsClient, named: dict[str, list[str]] | None
    ) -> Sequence[AwsResource] | UnreadableKind:
        ids = () if named is None else tuple(named.get(kind.name, ()))
        try:
            if named is None or not kind.in_tagging_api:
                return await self._listed(kind, claim, client)
            return tuple((await self._reads.read((read_scope(client), kind.name), client, ids)).values())
        except AwsError as error:
            if error.what != "denied":
                raise
            return UnreadableKind(kind, claim, ids, error)

    async def _listed(self, kind: AwsKind, claim: CapaClaim, client: AwsClient) -> Sequence[AwsResource]:
        tag = _tag(claim)
        return (await self._lists.read((read_scope(client), kind.name), client, [tag])).get(tag, ())

    # ---- the tagging API

    async def _tagged(self, claim: CapaClaim, client: AwsClient) -> list[str] | None:
        """ARNs, some of deleted resources; None if describe calls are to be used."""
        try:
            return await tagged_arns(claim, client)
        except AwsError as error:
            if self._mode == "tagging" or not is_unavailable(error):
                raise
            key = read_scope(client)
            self._tagging_api_retry_at[key] = time.monotonic() + TAGGING_API_BACKOFF.total_seconds()
            log.warning(
                "the tagging API can't be asked, resources are found by describe calls", account=key.account,
                region=key.region, identity=key.identity, reason=str(error),
                minutes=TAGGING_API_BACKOFF.total_seconds() / 60,
            )  # fmt: skip
            return None


# ---- kinds and ownership


def _kinds_by_tag(claim: CapaClaim, tasks: Collection[Task]) -> Iterator[tuple[CapaClaim, list[AwsKind]]]:
    """The kinds by the tag that identifies them."""
    ccm = [row.kind for row in CAPA_KINDS.values() if row.task in tasks]
    if ccm:
        yield msgspec.structs.replace(claim, by="ccm"), ccm
    if CONTROLLER_TASK in tasks:
        yield msgspec.structs.replace(claim, by="lbc"), list(kinds_of(CONTROLLER_TASK))


async def _find_by_id(claim: CapaClaim, ids: IdsByKind, client: AwsClient) -> FoundResources:
    finds = FoundResources()
    for kind in (row.kind for row in CAPA_KINDS.values()):
        by = ids.get(kind.name, {})
        found = await kind.read(client, list(by)) if by else {}
        for way in sorted({*by.values()}):
            own = msgspec.structs.replace(claim, by=way)
            _sort_by_ownership(kind, own, [found[one] for one in by if by[one] == way and one in found], finds)
    return finds


def _tag(claim: CapaClaim) -> str:
    return "=".join(owner_tag(claim))


def _sort_by_ownership(kind: AwsKind, claim: CapaClaim, found: Sequence[AwsResource], finds: FoundResources) -> None:
    known = {(item.kind.name, item.resource.id) for item in finds.owned}
    for one in found:
        if one.state in kind.absent_states or (kind.name, one.id) in known:
            continue
        if retention_reason(one):
            if ownership_objection(one, claim) is None:
                finds.retained.append(OwnedResource(kind, claim, one))
        elif ownership_objection(one, claim) is None:
            finds.owned.append(OwnedResource(kind, claim, one))
        elif not claim.vpc and ownership_objection(one, msgspec.structs.replace(claim, vpc=one.vpc)) is None:
            finds.ambiguous.append(OwnedResource(kind, claim, one))


# ---- shared reads


async def _read(key: tuple[ReadScope, str], client: AwsClient, ids: Collection[str]) -> dict[str, AwsResource]:
    return await CAPA_KINDS[key[1]].kind.read(client, list(ids))


async def _list(
    key: tuple[ReadScope, str], client: AwsClient, tags: Collection[str]
) -> dict[str, tuple[AwsResource, ...]]:
    """Resources of one kind by tag; those with none of the requested tags are dropped at once."""
    found = dict[str, list[AwsResource]]((tag, []) for tag in tags)
    names, kind = sorted({tag.rpartition("=")[0] for tag in tags}), CAPA_KINDS[key[1]].kind
    if kind.list_all is None:
        raise ValueError(f"resources of kind {kind.name} can't be listed")
    async for one in kind.list_all(client, names):
        for name, value in one.tags.items():
            if (group := found.get(f"{name}={value}")) is not None:
                group.append(one)
    return {tag: tuple(group) for tag, group in found.items()}
