"""The handler and the planner for the simulated provider that the demo and the scenarios run against.
It treats it as a real cloud: reads before it acts, checks the owner's tag, and believes only in absence."""

import re
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

import msgspec

from service.contract import (
    Blocked,
    Draw,
    Event,
    Gone,
    Hold,
    Job,
    Limit,
    Pause,
    Pending,
    Plan,
    Refused,
    Remaining,
    Target,
    Throttled,
    Verdict,
)
from workers.handlers.objects import Facts
from workers.handlers.protocol import Batch
from workers.handlers.single import Single

if TYPE_CHECKING:
    import aiohttp

SOURCE = "simulated"
KIND = "simulated"
DELETES = "deletes"
"""The limit that a delete draws on, once for each account."""

CALL_TIMEOUT = timedelta(seconds=20)
AT_ONCE = 50
"""Resources read in one call."""

_RESERVED = re.compile(r"reserved for another owner for ([0-9.]+) seconds")


class Found(msgspec.Struct, frozen=True):
    """A resource as the provider describes it."""

    id: str
    owner: str
    state: str


class _Many(msgspec.Struct, frozen=True):
    found: list[Found]


class _Word(msgspec.Struct, frozen=True):
    """What an answer says besides its status."""

    code: str = ""
    message: str = ""
    blocker: str = ""


class _TargetOf(msgspec.Struct, frozen=True):
    account: str
    id: str
    region: str = "here"
    chain: str = "main"
    stage: int = 0
    strategy: Literal["required", "best-effort"] = "required"


class _ObjectOf(msgspec.Struct, frozen=True):
    uid: str
    owner: str
    targets: list[_TargetOf]


class _Spec(msgspec.Struct, frozen=True):
    """What an object says that it owns, in its spec or in what the inventory kept of that."""

    owner: str = ""
    targets: list[_TargetOf] = []


class _Kubernetes(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


class _Quota(msgspec.Struct, frozen=True):
    kind: Literal["bucket", "window", "none"]
    capacity: float = 0.0
    per: float = 0.0


def lane_of(account: str, region: str, operation: str) -> str:
    return f"{SOURCE}/{account}/{region}/{operation}"


class ProviderAway(Exception):
    """It could not be reached when it was to be served; the message says why."""


class UnexpectedAnswer(Exception):
    """A status that has no translation: the attempt failed."""


class Simulated:
    """Plans and removes. `check_after` is how long an accepted delete is left alone; `limit` replaces what
    the provider says of its quota, `spare` is left of it for others; `caller` names us in its log."""

    kind = KIND
    name = SOURCE
    """As a collector, under which the settings of a source name it."""
    metadata_only = False

    def __init__(
        self,
        address: str,
        *,
        caller: str = "knell",
        check_after: timedelta = timedelta(seconds=1),
        limit: Limit | None = None,
        spare: float = 0.0,
    ) -> None:
        self.address = address.rstrip("/")
        self._caller, self._check_after, self._spare = caller, check_after, spare
        self._limit = limit
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Connects, and asks for the quota unless a limit was given. Raises ProviderAway."""
        # Only here: a process that serves no such provider does without the 10 MiB of this client.
        import aiohttp

        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT.total_seconds()),
            connector=aiohttp.TCPConnector(limit=0),
            headers={"x-caller": self._caller},
        )
        try:
            if self._limit is None:
                self._limit = await self._read_limit()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            await self._session.close()
            raise ProviderAway(str(error) or type(error).__name__) from error
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._calls.close()

    @property
    def _calls(self) -> "aiohttp.ClientSession":
        if self._session is None:
            raise RuntimeError("the simulated provider's client is used as a context")
        return self._session

    # ---- planning

    async def plan(self, event: Event) -> Plan | Hold:
        """The targets that the provider lists for the event's object."""
        async with self._calls.get(f"{self.address}/objects/{quote(event.uid, safe='')}") as answer:
            if answer.status == 404:
                return Hold(f"the simulated provider knows no object {event.uid}")
            if answer.status != 200:
                raise UnexpectedAnswer(f"{answer.status} to a read of object {event.uid}")
            found = msgspec.json.decode(await answer.read(), type=_ObjectOf)
        return Plan(_targets(found.owner, found.targets))

    async def collect(self, facts: Facts) -> Plan | Hold:
        """The targets that a live object's spec names, or that the inventory kept of one that is gone."""
        return collected(facts)

    # ---- removing

    def draws(self, lane: str) -> Sequence[Draw] | None:
        """Only deletes are limited; looking after an accepted one happens in a lane that draws on nothing."""
        if not lane.startswith(SOURCE + "/"):
            return None
        return (Draw(self._limit),) if self._limit is not None and lane.endswith("/delete") else ()

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        """One read for all jobs of the batch, then each on its own."""
        try:
            found = await self._read(batch.lane.split("/")[1], [job.target for job in batch.jobs])
        except Exception:
            for draw in self.draws(batch.lane) or ():
                batch.unused(draw.limit.name, draw.cost * len(batch.jobs))
            raise
        async for job, verdict in Single(_Removal(self, found)).attempt(batch):
            yield job, verdict

    async def remove(self, job: Job, batch: Batch, found: Found | None) -> Verdict:
        _, account, region, operation = batch.lane.split("/", 3)
        limited = operation == "delete" and self._limit is not None
        if found is None or found.owner != job.data or found.state == "deleting":
            if limited:
                batch.unused(DELETES)
            return self._judge_without_call(job, found, lane_of(account, region, "read"))
        if operation != "delete":
            return Pending(timedelta(0), "it is there again", lane=lane_of(account, region, "delete"))
        await batch.clear(job)
        async with self._calls.delete(self._url(account, job.target)) as answer:
            word = await _word_of(answer)
            status, headers = answer.status, answer.headers
        if limited:
            _tell(batch, status, headers)
        match status:
            case 202:
                return Pending(self._check_after, "accepted", lane=lane_of(account, region, "read"))
            case 204 | 404:
                return await self._prove(account, job, region)
            case 400 if reserved := _RESERVED.search(word.message):
                return Blocked(word.message, until=timedelta(seconds=float(reserved[1])))
            case 409:
                return Blocked(word.blocker or word.message)
            case 429:
                return Throttled(_seconds(headers.get("Retry-After")), "the provider's quota is used up")
            case _:
                raise UnexpectedAnswer(f"{status} {word.code} to the delete of {job.target}")

    def _judge_without_call(self, job: Job, found: Found | None, reading: str) -> Verdict:
        if found is None:
            return Gone()
        if found.owner != job.data:
            return Refused(f"{found.id} is tagged with owner {found.owner}, not {job.data}")
        return Pending(self._check_after, "being deleted", lane=reading)

    async def _prove(self, account: str, job: Job, region: str) -> Verdict:
        found = await self._read(account, [job.target])
        if job.target not in found:
            return Gone()
        return Pending(self._check_after, "deleted, and still there", lane=lane_of(account, region, "read"))

    async def _read(self, account: str, names: Sequence[str]) -> dict[str, Found]:
        found: dict[str, Found] = {}
        for first in range(0, len(names), AT_ONCE):
            part = ",".join(names[first : first + AT_ONCE])
            url = f"{self.address}/accounts/{quote(account, safe='')}/resources"
            async with self._calls.get(url, params={"ids": part}) as answer:
                if answer.status != 200:
                    raise UnexpectedAnswer(f"{answer.status} to a read of {part}")
                for one in msgspec.json.decode(await answer.read(), type=_Many).found:
                    found[one.id] = one
        return found

    async def _read_limit(self) -> Limit | None:
        async with self._calls.get(f"{self.address}/quota") as answer:
            answer.raise_for_status()
            quota = msgspec.json.decode(await answer.read(), type=_Quota)
        if quota.kind == "none":
            return None
        per = timedelta(seconds=quota.per)
        return Limit(name=DELETES, capacity=quota.capacity, per=per, kind=quota.kind, spare=self._spare)

    def _url(self, account: str, name: str) -> str:
        return f"{self.address}/accounts/{quote(account, safe='')}/resources/{quote(name, safe='')}"


class _Removal:
    """The attempts of one batch, with what was read for all of them."""

    kind = KIND

    def __init__(self, provider: Simulated, found: dict[str, Found]) -> None:
        self._provider, self._found = provider, found

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._provider.draws(lane)

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        return await self._provider.remove(job, batch, self._found.get(job.target))


def collected(facts: Facts) -> Plan | Hold:
    """Resources are tagged with the owner that the spec names, else with the object's uid. A tag that is the object's
    name is the namesake's as well, if there is one: then nothing tells whose they are, and they are left alone."""
    try:
        if facts.live is not None:
            spec = msgspec.json.decode(facts.live.raw, type=_Kubernetes).spec
        else:
            spec = msgspec.json.decode(facts.recognises or "{}", type=_Spec)
    except msgspec.DecodeError as error:
        return Hold(f"the object does not name its targets as the simulated provider wants: {error}", again=True)
    about = facts.about
    if facts.namesake and spec.owner in (about.name, f"{about.namespace}/{about.name}"):
        return Plan([])
    return Plan(_targets(spec.owner or about.uid, spec.targets))


def _targets(owner: str, named: Sequence[_TargetOf]) -> list[Target]:
    return [
        Target(
            kind=KIND,
            id=target.id,
            lane=lane_of(target.account, target.region, "delete"),
            chain=target.chain,
            stage=target.stage,
            strategy=target.strategy,
            data=owner,
        )
        for target in named
    ]


def _tell(batch: Batch, status: int, headers: Any) -> None:
    if status == 429:
        batch.tell(Pause(DELETES, _seconds(headers.get("Retry-After"))))
    else:
        left = headers.get("x-remaining")
        batch.tell(Remaining(DELETES, float(left) if left is not None else None))


def _seconds(text: str | None) -> timedelta | None:
    return timedelta(seconds=float(text)) if text else None


async def _word_of(answer: "aiohttp.ClientResponse") -> _Word:
    body = await answer.read()
    try:
        return msgspec.json.decode(body, type=_Word) if body else _Word()
    except msgspec.DecodeError:
        return _Word(message=body[:200].decode(errors="replace"))
