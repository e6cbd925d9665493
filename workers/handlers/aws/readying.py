"""What comes before anything is done to the resources of a batch: as whom, what is there, and whose it is.
Reads serve all jobs of one identity; each job is judged by itself, and keeps the calls of its own cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

import msgspec

from service.contract import Blocked, Gone, Job, Left, Pending, Refused, Throttled, Verdict
from service.settings.aws import AwsSettings
from workers.handlers import freshness
from workers.handlers.aws.errors import NO_ROOM, AwsError, NoAccess
from workers.handlers.aws.model import Calls, Found, Kind, Look, Owner, Reach, Turn, Whose
from workers.handlers.aws.ownership import owned, protected, retained
from workers.handlers.aws.rounds import until_round
from workers.handlers.aws.tokens import Counted
from workers.handlers.aws.wanting import Wanting
from workers.handlers.protocol import Batch
from workers.handlers.tokens import Tokens

POLICY: Final = "deploy/aws/iam-policy.json"
LET_BE: Final = "it goes once it is the cluster's again; `knell held drop` lets the object go without it"
ABANDON: Final = "`knell jobs abandon` lets the object go without it"
_owner: Final = msgspec.json.Decoder(Owner)

Ready = Turn | Verdict | Exception
"""A job after the reads for its batch: its turn, or what was found without one."""


class Claim(NamedTuple):
    """A job with its owner, and the calls that are made for it."""

    job: Job
    owner: Owner
    calls: Calls


class Readying:
    def __init__(self, kind: Kind, reach: Reach, settings: AwsSettings, wanting: Wanting) -> None:
        self._kind, self._reach, self._settings, self._wanting = kind, reach, settings, wanting

    async def ready(self, batch: Batch, tokens: Tokens) -> dict[str, Ready]:
        """By job. Those of one lane may be of several clusters, and these of several identities: each reads as
        itself."""
        place, _, operation = batch.lane.rpartition("/")
        readied: dict[str, Ready] = {}
        owners: dict[str, Owner] = {}
        for job in batch.jobs:
            owner = _owner_of(job, place)
            if isinstance(owner, Owner):
                owners[job.id] = owner
            else:
                readied[job.id] = owner
        reached = await self._reached(owners.values(), tokens)
        groups: dict[tuple[str, str], list[Claim]] = {}
        for job in batch.jobs:
            if (found := owners.get(job.id)) is not None:
                calls = reached[found.whose, found.account]
                if isinstance(calls, Counted):
                    # Once it may be used from a namespace, an identity is the same from there as from any other.
                    group = groups.setdefault((found.whose.source, found.whose.identity), [])
                    group.append(Claim(job, found, calls))
                else:
                    readied[job.id] = calls
        for some in await asyncio.gather(*(self._read(batch, operation, group) for group in groups.values())):
            readied |= some
        return readied

    async def _reached(
        self, owners: Iterable[Owner], tokens: Tokens
    ) -> dict[tuple[Whose, str], Counted | Verdict | Exception]:
        async def reach(whose: Whose, account: str) -> Counted | Verdict | Exception:
            beyond = partial(self._reach.calls, whose, account=account, paced=True)
            try:
                return Counted(await self._reach.calls(whose, account=account), tokens, beyond)
            except (AwsError, NoAccess) as error:
                return meaning(error)

        wanted = list(dict.fromkeys((owner.whose, owner.account) for owner in owners))
        return dict(zip(wanted, await asyncio.gather(*(reach(*one) for one in wanted)), strict=True))

    # ---- reading

    async def _read(self, batch: Batch, operation: str, claims: Sequence[Claim]) -> dict[str, Ready]:
        readied: dict[str, Ready] = {}
        began = freshness.now()
        try:
            found = await self._found(claims[0].calls, operation, sorted({claim.job.target for claim in claims}))
            readied = {claim.job.id: self._judged(claim, found, operation, batch) for claim in claims}
            for claim in claims:
                if isinstance(turn := readied[claim.job.id], Turn):
                    readied[claim.job.id] = replace(turn, read=began, again=self._again(batch, operation, claim))
            turns = [turn for turn in readied.values() if isinstance(turn, Turn)]
            look = self._look(operation)
            if look is not None and turns:
                seen = await look(turns)
                readied |= {turn.job.id: replace(turn, seen=seen) for turn in turns}
        except (AwsError, NoAccess) as error:
            # What was judged already needs nothing of what could not be read.
            unready = [one.job.id for one in claims if isinstance(readied.get(one.job.id), Turn | None)]
            readied |= dict.fromkeys(unready, meaning(error))
        return readied

    def _again(self, batch: Batch, operation: str, claim: Claim) -> Callable[[], Awaitable[Ready]] | None:
        """Reads for one job alone. A step that judges nothing destroys nothing, and needs none."""
        step = self._kind.steps.get(operation)
        return partial(self._alone, batch, operation, claim) if step is None or step.judged else None

    async def _alone(self, batch: Batch, operation: str, claim: Claim) -> Ready:
        return (await self._read(batch, operation, [claim]))[claim.job.id]

    async def _found(self, calls: Calls, operation: str, ids: Sequence[str]) -> dict[str, Found]:
        step = self._kind.steps.get(operation)
        if step is not None and not step.judged:
            return {one: Found(kind=self._kind.name, id=one, tags={}) for one in ids}
        if operation == self._kind.checking and self._kind.exists is not None:
            return await self._kind.exists(calls, ids)
        return await self._kind.read(calls, ids)

    def _look(self, operation: str) -> Look | None:
        step = self._kind.steps.get(operation)
        if step is not None:
            return step.look
        return self._kind.look if operation == self._kind.operation else None

    # ---- judging

    def _judged(self, claim: Claim, found: dict[str, Found], operation: str, batch: Batch) -> Ready:
        kind, (job, owner, calls) = self._kind, claim
        one = found.get(job.target)
        if one is None:
            return Gone()
        latest = partial(self._wanting.latest, job.deletion)
        turn = Turn(job, latest(owner), one, calls, batch, self._settings, resume=job.resume, latest=latest)
        step = kind.steps.get(operation)
        if step is not None and not step.judged:
            return turn
        if one.state in kind.absent:
            return Gone(f"it is {one.state}")
        if kind.born is not None and job.resume and kind.born(one) != job.resume:
            return Gone("it is gone, and another one has its name by now")
        if operation == kind.checking:
            if one.state in kind.going:
                return later(turn, kind, f"it is {one.state}", job.resume)
            return Pending(timedelta(0), "it is still there", lane=f"{owner.place}/{kind.operation}", resume=job.resume)
        reason = owned(one, owner, kind)
        if reason is not None:
            # It was the owner's when it was planned, or could not be read then: a person has to say whose it is now.
            return Refused(f"{reason}; {LET_BE}")
        if one.state in kind.going:
            return later(turn, kind, f"it is {one.state}")
        if kept := retained(one):
            return Left(f"left where it is: {kept}")
        if kept := protected(one):
            return Refused(f"{kept}; {ABANDON}")
        return turn


def later(turn: Turn, kind: Kind, detail: str, resume: str = "") -> Pending:
    """Its absence is looked for in a round, with that of all others of that time."""
    return turn.hop(kind.checking, detail, after=until_round(turn.settings.check_after, 0.5), resume=resume)


def meaning(error: AwsError | NoAccess) -> Verdict | Exception:
    """What an error is for the jobs that it stopped; what has no meaning of its own is a failed attempt."""
    if isinstance(error, NoAccess):
        return Blocked(str(error), person=True) if error.again else Refused(str(error))
    match error.what:
        case "throttled":
            return Throttled(error.after, str(error), unasked=error.code == NO_ROOM)
        case "denied":
            return Refused(f"{error.action} is denied ({error.code}); allow it, as {POLICY} does")
        case "depends":
            return Blocked(str(error))
        case "protected":
            return Refused(f"it is protected: {error}")
        case _:
            return error.with_traceback(None)


def _owner_of(job: Job, place: str) -> Owner | Exception:
    try:
        owner = _owner.decode(job.data)
    except msgspec.DecodeError as error:
        return error
    if owner.place != place:
        return ValueError(f"its owner is of {owner.place}, and the lane of {place}")
    return owner
