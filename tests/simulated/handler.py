"""Handler, collector and planner of the simulated provider.
The handler treats it as a real cloud: it reads before it deletes, checks the owner's tag, and takes only absence as
proof."""

import re
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

import aiohttp
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
    Throttled,
    Verdict,
)
from tests.simulated.collector import NAME, NamedTarget, collected, lane_of, targets_of
from workers.handlers.batch_adapter import BatchAdapter
from workers.handlers.collector import ObjectFacts
from workers.handlers.protocol import Batch

SOURCE = NAME
"""The source of events without a cluster, in the registries of scenarios."""
DELETES = "deletes"
"""The limit that a delete draws on, once for each account."""

CALL_TIMEOUT = timedelta(seconds=20)
AT_ONCE = 50
"""Resources read in one call."""

_RESERVED = re.compile(r"reserved for another owner for ([0-9.]+) seconds")


class FoundResource(msgspec.Struct, frozen=True):
    """A resource as the provider describes it."""

    id: str
    owner: str
    state: str


class _Listing(msgspec.Struct, frozen=True):
    found: list[FoundResource]


class _ErrorBody(msgspec.Struct, frozen=True):
    """What an answer says besides its status."""

    code: str = ""
    message: str = ""
    blocker: str = ""


class _ObjectBody(msgspec.Struct, frozen=True):
    uid: str
    owner: str
    targets: list[NamedTarget]


class _Quota(msgspec.Struct, frozen=True):
    kind: Literal["bucket", "window", "none"]
    capacity: float = 0.0
    per: float = 0.0


class ProviderUnreachable(Exception):
    """The provider gave no answer when its client was opened; the message says why."""


class UnexpectedAnswer(Exception):
    """A status that has no translation: the attempt failed."""


class SimulatedHandler:
    """Plans and removes. `check_after` is how long an accepted delete is left alone; `limit` replaces what
    the provider says of its quota, `spare` is left of it for others; `caller` names us in its log."""

    kind = NAME
    name = NAME
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
        """Connects, and asks for the quota unless a limit was given. Raises ProviderUnreachable."""
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
            raise ProviderUnreachable(str(error) or type(error).__name__) from error
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._calls.close()

    @property
    def _calls(self) -> aiohttp.ClientSession:
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
            found = msgspec.json.decode(await answer.read(), type=_ObjectBody)
        return Plan(targets_of(found.owner, found.targets))

    async def collect(self, facts: ObjectFacts) -> Plan | Hold:
        """The targets that a live object's spec names, or that the inventory kept of one that is gone."""
        return collected(facts)

    # ---- removing

    def draws(self, lane: str) -> Sequence[Draw] | None:
        """Only deletes are limited; looking after an accepted one happens in a lane that draws on nothing."""
        if not lane.startswith(NAME + "/"):
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
        async for job, verdict in BatchAdapter(_Removal(self, found)).attempt(batch):
            yield job, verdict

    async def remove(self, job: Job, batch: Batch, found: FoundResource | None) -> Verdict:
        _, account, region, operation = batch.lane.split("/", 3)
        limited = operation == "delete" and self._limit is not None
        if found is None or found.owner != job.data or found.state == "deleting":
            if limited:
                batch.unused(DELETES)
            return self._verdict_without_call(job, found, lane_of(account, region, "read"))
        if operation != "delete":
            return Pending(timedelta(0), "it is there again", lane=lane_of(account, region, "delete"))
        await batch.clear(job)
        async with self._calls.delete(self._url(account, job.target)) as answer:
            body = await _error_body(answer)
            status, headers = answer.status, answer.headers
        if limited:
            _report_quota(batch, status, headers)
        match status:
            case 202:
                return Pending(self._check_after, "accepted", lane=lane_of(account, region, "read"))
            case 204 | 404:
                return await self._confirm_absence(account, job, region)
            case 400 if reserved := _RESERVED.search(body.message):
                return Blocked(body.message, until=timedelta(seconds=float(reserved[1])))
            case 409:
                return Blocked(body.blocker or body.message)
            case 429:
                return Throttled(_seconds(headers.get("Retry-After")), "the provider's quota is used up")
            case _:
                raise UnexpectedAnswer(f"{status} {body.code} to the delete of {job.target}")

    def _verdict_without_call(self, job: Job, found: FoundResource | None, reading: str) -> Verdict:
        if found is None:
            return Gone()
        if found.owner != job.data:
            return Refused(f"{found.id} is tagged with owner {found.owner}, not {job.data}")
        return Pending(self._check_after, "being deleted", lane=reading)

    async def _confirm_absence(self, account: str, job: Job, region: str) -> Verdict:
        found = await self._read(account, [job.target])
        if job.target not in found:
            return Gone()
        return Pending(self._check_after, "deleted, and still there", lane=lane_of(account, region, "read"))

    async def _read(self, account: str, names: Sequence[str]) -> dict[str, FoundResource]:
        found: dict[str, FoundResource] = {}
        for first in range(0, len(names), AT_ONCE):
            part = ",".join(names[first : first + AT_ONCE])
            url = f"{self.address}/accounts/{quote(account, safe='')}/resources"
            async with self._calls.get(url, params={"ids": part}) as answer:
                if answer.status != 200:
                    raise UnexpectedAnswer(f"{answer.status} to a read of {part}")
                for one in msgspec.json.decode(await answer.read(), type=_Listing).found:
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

    kind = NAME

    def __init__(self, provider: SimulatedHandler, found: dict[str, FoundResource]) -> None:
        self._provider, self._found = provider, found

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._provider.draws(lane)

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        return await self._provider.remove(job, batch, self._found.get(job.target))


def _report_quota(batch: Batch, status: int, headers: Any) -> None:
    if status == 429:
        batch.report_quota(Pause(DELETES, _seconds(headers.get("Retry-After"))))
    else:
        left = headers.get("x-remaining")
        batch.report_quota(Remaining(DELETES, float(left) if left is not None else None))


def _seconds(text: str | None) -> timedelta | None:
    return timedelta(seconds=float(text)) if text else None


async def _error_body(answer: aiohttp.ClientResponse) -> _ErrorBody:
    body = await answer.read()
    try:
        return msgspec.json.decode(body, type=_ErrorBody) if body else _ErrorBody()
    except msgspec.DecodeError:
        return _ErrorBody(message=body[:200].decode(errors="replace"))
