"""Which resources carry a cluster's tag: by the tagging API, or by describe calls where that one can't be asked.
Each is confirmed by a describe and judged; reads and lists serve all clusters that ask for them at the same time, and
those of a large account go on while nobody waits for them."""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple

import msgspec
import structlog

from service.contract.aws import Task
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.evidence import Standing, standing
from workers.handlers.aws.joining import Joined
from workers.handlers.aws.kinds import KINDS, kinds_of
from workers.handlers.aws.lasting import PATIENCE, Lasting, Unfinished
from workers.handlers.aws.model import By, Calls, Found, Kind, Owner
from workers.handlers.aws.ownership import mark_of, owned, retained
from workers.handlers.aws.tagging import Paid, away, by_kind, tagged

log = structlog.get_logger(__name__)

CONTROLLER_TASK: Final[Task] = "aws-load-balancer-controller"
GATHERS: Final = timedelta(milliseconds=500)
"""So long a read waits for others of its kind. Clusters come in one by one, as fast as the tagging API answers; read
one by one, each would cost as many calls as all of them together."""

AVOIDED: Final = timedelta(minutes=5)
"""How long the tagging API is left alone where it could not be asked."""

KIND: Final = {kind.name: kind for kind in KINDS}
Mode = Literal["auto", "tagging", "describe"]
Ids = Mapping[str, Mapping[str, By]]
"""By kind, the ids of resources, each with the tag that recognises it."""


class Claim(NamedTuple):
    """A resource that is there and the owner's. `owner` says by which tag."""

    kind: Kind
    owner: Owner
    found: Found


class Unread(NamedTuple):
    """A kind that may not be read: what the tagging API named of it, nothing where it is not asked."""

    kind: Kind
    owner: Owner
    ids: tuple[str, ...]
    error: AwsError


class StillListing(Exception):
    """Nothing is known yet; the list goes on, and is there for who asks again under the same name."""


class Finds(msgspec.Struct):
    """`odd` are ARNs that can't be parsed; `vague` is what would be the owner's if its VPC were known; `kept` is what a
    tag says was kept with an object before."""

    claims: list[Claim] = []
    unread: list[Unread] = []
    odd: list[str] = []
    vague: list[Claim] = []
    kept: list[Claim] = []


class Finding:
    """`patience` is how long who asks waits for an answer."""

    def __init__(self, mode: Mode, patience: timedelta = PATIENCE) -> None:
        self._mode = mode
        self._looks = Lasting[Finds](patience)
        self._reads = Joined[tuple[Standing, str], Found](_read, gathers=GATHERS)
        self._lists = Joined[tuple[Standing, str], tuple[Found, ...]](_list, gathers=GATHERS)
        self._avoided: dict[Standing, float] = {}

    def name(self, before: Iterable[str] = ()) -> str:
        """The one of those names under which an answer is awaited here, or a new one."""
        return self._looks.name(before)

    async def find(
        self, owner: Owner, tasks: Collection[Task], calls: Calls, paid: Paid | None = None, *, name: str
    ) -> Finds:
        """By calls that were all made after this was first asked under that name. `calls` are patient; `paid` is for
        the first call to the tagging API where a lane has drawn for it. Raises AwsError where a list would not be
        whole, Refill, and StillListing."""
        question = owner, tuple(tasks), standing(calls)
        return await self._asked(name, owner, question, lambda: self._find(owner, tasks, calls, paid))

    async def find_by_id(self, owner: Owner, ids: Ids, calls: Calls, *, name: str) -> Finds:
        """The same for resources whose ids are known: those of them that are there and still the owner's."""
        question = owner, ids, standing(calls)
        return await self._asked(name, owner, question, lambda: _find_by_id(owner, ids, calls))

    async def aclose(self) -> None:
        await self._looks.aclose()
        await self._reads.aclose()
        await self._lists.aclose()

    async def _asked(
        self, name: str, owner: Owner, question: object, begin: Callable[[], Coroutine[Any, Any, Finds]]
    ) -> Finds:
        try:
            return await self._looks.ask(name, question, begin)
        except Unfinished:
            raise StillListing(
                f"listing goes on: what account {owner.account} has in region {owner.whose.region} takes its time"
            ) from None

    async def _find(self, owner: Owner, tasks: Collection[Task], calls: Calls, paid: Paid | None) -> Finds:
        finds, wanted = Finds(), list[tuple[Kind, Owner, dict[str, list[str]] | None]]()
        for own, kinds in _wanted(owner, tasks):
            named = None
            if self._mode != "describe" and time.monotonic() >= self._avoided.get(standing(calls), 0.0):
                arns = await self._tagged(own, calls, paid)
                named = None if arns is None else by_kind(arns, kinds, own, finds.odd)
            wanted += [(kind, own, named) for kind in kinds]
        # Under both tags at once: one list of the account serves them. All are waited for: none goes on behind the back
        # of who has heard of a failure.
        looks = (self._one(kind, own, calls, named) for kind, own, named in wanted)
        for (kind, own, _), found in zip(wanted, await asyncio.gather(*looks, return_exceptions=True), strict=True):
            if isinstance(found, BaseException):
                raise found
            if isinstance(found, Unread):
                finds.unread.append(found)
            else:
                _judge(kind, own, found, finds)
        return finds

    # ---- one kind

    async def _one(
        self, kind: Kind, owner: Owner, calls: Calls, named: dict[str, list[str]] | None
    ) -> Sequence[Found] | Unread:
        ids = () if named is None else tuple(named.get(kind.name, ()))
        try:
            if named is None or not kind.told:
                return await self._listed(kind, owner, calls)
            return tuple((await self._reads.ask((standing(calls), kind.name), calls, ids)).values())
        except AwsError as error:
            if error.what != "denied":
                raise
            return Unread(kind, owner, ids, error)

    async def _listed(self, kind: Kind, owner: Owner, calls: Calls) -> Sequence[Found]:
        tag = _tag(owner)
        return (await self._lists.ask((standing(calls), kind.name), calls, [tag])).get(tag, ())

    # ---- the tagging API

    async def _tagged(self, owner: Owner, calls: Calls, paid: Paid | None) -> list[str] | None:
        """ARNs, of which some may be long gone; None where they are to be found by describe calls."""
        try:
            return await tagged(owner, calls, paid)
        except AwsError as error:
            if self._mode == "tagging" or not away(error):
                raise
            key = standing(calls)
            self._avoided[key] = time.monotonic() + AVOIDED.total_seconds()
            log.warning(
                "the tagging API can't be asked, resources are found by describe calls", account=key.account,
                region=key.region, identity=key.identity, reason=str(error), minutes=AVOIDED.total_seconds() / 60,
            )  # fmt: skip
            return None


# ---- what is wanted


def _wanted(owner: Owner, tasks: Collection[Task]) -> Iterator[tuple[Owner, list[Kind]]]:
    """The kinds by the tag that recognises them."""
    ccm = [kind for kind in KINDS if kind.task in tasks]
    if ccm:
        yield msgspec.structs.replace(owner, by="ccm"), ccm
    if CONTROLLER_TASK in tasks:
        yield msgspec.structs.replace(owner, by="lbc"), list(kinds_of(CONTROLLER_TASK))


async def _find_by_id(owner: Owner, ids: Ids, calls: Calls) -> Finds:
    finds = Finds()
    for kind in KINDS:
        by = ids.get(kind.name, {})
        found = await kind.read(calls, list(by)) if by else {}
        for way in sorted({*by.values()}):
            own = msgspec.structs.replace(owner, by=way)
            _judge(kind, own, [found[one] for one in by if by[one] == way and one in found], finds)
    return finds


def _tag(owner: Owner) -> str:
    return "=".join(mark_of(owner))


def _judge(kind: Kind, owner: Owner, found: Sequence[Found], finds: Finds) -> None:
    known = {(claim.kind.name, claim.found.id) for claim in finds.claims}
    for one in found:
        if one.state in kind.absent or (kind.name, one.id) in known:
            continue
        if retained(one):
            if owned(one, owner, kind) is None:
                finds.kept.append(Claim(kind, owner, one))
        elif owned(one, owner, kind) is None:
            finds.claims.append(Claim(kind, owner, one))
        elif not owner.vpc and owned(one, msgspec.structs.replace(owner, vpc=one.vpc), kind) is None:
            finds.vague.append(Claim(kind, owner, one))


# ---- reads that are shared


async def _read(key: tuple[Standing, str], calls: Calls, ids: Collection[str]) -> dict[str, Found]:
    return await KIND[key[1]].read(calls, list(ids))


async def _list(key: tuple[Standing, str], calls: Calls, tags: Collection[str]) -> dict[str, tuple[Found, ...]]:
    """By tag, of one kind; what carries none of the tags that were asked for is dropped at once."""
    found = dict[str, list[Found]]((tag, []) for tag in tags)
    names = sorted({tag.rpartition("=")[0] for tag in tags})
    async for one in KIND[key[1]].list_all(calls, names):
        for name, value in one.tags.items():
            if (group := found.get(f"{name}={value}")) is not None:
                group.append(one)
    return {tag: tuple(group) for tag, group in found.items()}
