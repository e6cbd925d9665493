"""Removes resources of one kind: reads, judges whose it is and whether it lives, deletes, and proves absence later.
Every turn begins with a read, so that a crash between a call and its record repeats what does no harm."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

import msgspec

from service.contract import Blocked, Draw, Gone, Job, Left, Pending, Refused, Verdict
from service.settings import AzureNodes, AzureSettings
from workers.handlers import freshness
from workers.handlers.azure.abandoned import left_with
from workers.handlers.azure.calls import AzureCalls
from workers.handlers.azure.consents import Consents, misnamed
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.kinds import NIC, VM, Kind
from workers.handlers.azure.limits import lane_draws
from workers.handlers.azure.meaning import meaning
from workers.handlers.azure.meters import BatchMeter
from workers.handlers.azure.model import Accepted, Found, Meter, Owner, Where
from workers.handlers.azure.nodes import Protection
from workers.handlers.azure.ownership import judged, older
from workers.handlers.azure.trails import Trail
from workers.handlers.freshness import Outdated, clear_until, comes_again, fresh_until
from workers.handlers.memory import Memory, NoMemory
from workers.handlers.protocol import Batch, NotCleared
from workers.handlers.single import Single
from workers.handlers.tokens import Cleared, Tokens

CHECK: Final = timedelta(seconds=4)
"""When an accepted delete is looked after, where Azure does not say; then later and later, while it takes its time."""

LONGEST_CHECK: Final = timedelta(minutes=1)
LIVES: Final = 60_000
"""Milliseconds after which a machine that a Node protects is asked about again."""

FRESH_SIGNS: Final = timedelta(seconds=30)
"""How old the reading of the signs of life may be when a delete is sent."""

VAIN: Final = timedelta(seconds=15)
LONGEST_VAIN: Final = timedelta(minutes=30)
"""How long a delete waits that was accepted before and had no effect: twice as long each time."""

MANY: Final = 20
"""After so many times nothing grows any more: what goes on for days must stay a number."""

_owner: Final = msgspec.json.Decoder(Owner)


class Protecting(Protocol):
    async def protects(self, source: str, machine: str, node: str) -> Protection | None:
        """Why a machine must stay; None where nothing speaks for it."""


class Turn(NamedTuple):
    """One job's turn, in one of the two lanes of its kind; `place` is what the settings say of its group now."""

    job: Job
    owner: Owner
    place: AzureNodes
    calls: AzureCalls
    batch: Cleared
    trail: Trail

    @property
    def where(self) -> Where:
        return self.owner.where


Calling = Callable[[Where, Meter], AzureCalls]


class Removal:
    """The handler of one kind. `calling` gives calls that a meter counts; `settings` say where anything may be removed,
    whatever was planned before they were changed; `consents` is what the collector of the same process notes; `memory`
    knows what a person abandoned."""

    def __init__(
        self,
        kind: Kind,
        calling: Calling,
        nodes: Protecting,
        settings: AzureSettings,
        consents: Consents,
        memory: Memory | None = None,
    ) -> None:
        self.kind, self._settings, self._consents = kind.name, settings, consents
        self._memory = memory or NoMemory()
        self._kind, self._calling, self._nodes = kind, calling, nodes

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return lane_draws(lane, self._settings.reserve)

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        tokens = Tokens(batch, self.draws(batch.lane) or (), len(batch.jobs))
        turns, rest = _Turns(self, tokens), {job.id for job in batch.jobs}
        try:
            async for job, verdict in Single(turns).attempt(batch):
                rest.discard(job.id)
                if isinstance(verdict, NotCleared) and job.id not in turns.cleared:
                    tokens.handed_back()
                yield job, verdict
        except asyncio.CancelledError:
            # Those without a verdict are handed back by the runtime, and what was reserved for them, too; but not for
            # those that were cleared, for their calls may have been made.
            for _ in rest - turns.cleared:
                tokens.handed_back()
            raise
        finally:
            tokens.give_back()

    async def turn(self, job: Job, batch: Cleared, tokens: Tokens) -> Verdict:
        owner = _owner.decode(job.data)
        operation = batch.lane.rpartition("/")[2]
        if owner.where.lane(operation) != batch.lane:
            raise ValueError(f"it is in {owner.where.lane(operation)}, and stands in lane {batch.lane}")
        if (fault := misnamed(job, owner.claim)) is not None:
            return Refused(fault)
        place = self._place(owner)
        if place is None:
            return Refused(
                f"azure.nodes does not name group {owner.where.group} of subscription {owner.where.subscription} for "
                f"cluster {owner.cluster} and source {owner.source} any more, so nothing there is touched; name it "
                f"again, or let go by `knell jobs abandon`"
            )
        calls = self._calling(owner.where, BatchMeter(tokens))
        turn = Turn(job, owner, place, calls, batch, Trail.read(job.resume, owner.judged))
        try:
            if operation == self._kind.removing:
                return await self._remove(turn)
            if self._kind is NIC and operation == VM.removing:
                return await self._remove_machine(turn)
            return await self._look(turn)
        except Outdated as outdated:
            return comes_again(outdated)
        except AzureError as error:
            return meaning(error, turn.where)

    def _place(self, owner: Owner) -> AzureNodes | None:
        places = self._settings.nodes.get(owner.source, ())
        here = (one for one in places if one.describes(owner.where.subscription, owner.where.group))
        return next((one for one in here if one.cluster == owner.cluster), None)

    # ---- looking

    async def _look(self, turn: Turn) -> Verdict:
        """Nothing is destroyed here. Most of what is asked for is gone, for others have removed it."""
        found = await turn.calls.read(self._kind, turn.job.target)
        if found is None:
            return Gone(absent=not turn.trail.guid)
        if (against := self._judge(turn, self._kind, found, turn.trail.guid)) is not None:
            return against
        trail = turn.trail
        if found.going:
            return self._later(turn, trail._replace(guid=found.guid, looks=trail.looks + 1), "it is being deleted")
        wait = timedelta(0)
        if trail.deletes > 1:
            wait = min(LONGEST_VAIN, VAIN * 2 ** min(MANY, trail.deletes - 2))
        words = f"it is there ({found.state})"
        if trail.deletes:
            words += f", although its deletion was accepted {trail.deletes} times"
        after = str(trail._replace(guid=found.guid, looks=0))
        return Pending(wait, words, lane=turn.where.lane(self._kind.removing), resume=after)

    def _judge(self, turn: Turn, kind: Kind, found: Found | None, guid: str) -> Verdict | None:
        """What the resource itself says; None for one that is ours, and the one that was judged before."""
        if found is None:
            return Gone()
        if not found.guid:
            raise ValueError(f"Azure does not say which {kind.type} this is")
        if guid and found.guid != guid:
            return Gone(f"it is gone, and another one has its name by now ({found.guid})")
        whose = judged(found.tags, turn.place.cluster, turn.place.tags)
        match whose.kind:
            case "left":
                return Left(f"{found.name} is left alone: {whose.reason}")
            case "kept" | "untagged":
                return Refused(f"{found.name}: {whose.reason}")
            case "ours" if spared := kind.spared(found):
                return Refused(f"{found.name}: {spared}")
            case "ours" if not self._settings.accept_older and (why := older(found, turn.owner)):
                return Refused(f"{found.name}: {why}")
        return None

    def _later(self, turn: Turn, trail: Trail, words: str, after: timedelta | None = None) -> Pending:
        """Its absence is looked for."""
        wait = after if after is not None else min(LONGEST_CHECK, CHECK * 1.5 ** min(MANY, max(0, trail.looks - 1)))
        return Pending(wait, words, lane=turn.where.lane(self._kind.reading), resume=str(trail))

    # ---- removing

    async def _remove(self, turn: Turn) -> Verdict:
        begun = freshness.now()
        against = await self._alive(turn)
        if against is not None:
            return against
        found = await turn.calls.read(self._kind, turn.job.target)
        against = self._judge(turn, self._kind, found, turn.trail.guid)
        if against is None and found is not None:
            against = await self._unfit(turn, found)
        if against is not None or found is None:
            return against or Gone()
        await self._clear(turn, begun)
        accepted = await turn.calls.delete(self._kind, turn.job.target)
        return self._accepted(turn, accepted, turn.trail._replace(guid=found.guid))

    async def _clear(self, turn: Turn, begun: float) -> None:
        """Signs of life first, then the resource itself, and consent last: who makes anything anew under this name has
        made its NodeClaim before, so that a read which took long does no harm."""
        until = min(fresh_until(freshness.now()), begun + FRESH_SIGNS.total_seconds())
        await clear_until(turn.batch, turn.job, until)
        self._consents.check(turn.job, turn.owner)

    async def _remove_machine(self, turn: Turn) -> Verdict:
        """Of an interface whose claim is gone: a machine came to have it after the stage of machines was over."""
        begun, back = freshness.now(), turn.trail._replace(machine="")
        await self._protected(turn)
        machine = await turn.calls.read(VM, turn.job.target)
        if machine is not None and (left := await self._left_with_machine(turn)) is not None:
            return left
        against = self._judge(turn, VM, machine, turn.trail.machine)
        if isinstance(against, Gone) or machine is None:
            return Pending(timedelta(0), "its machine is gone", lane=turn.where.lane(NIC.removing), resume=str(back))
        if against is not None or machine.going:
            return against or Blocked(f"virtual machine {machine.name}, which is being deleted")
        await self._clear(turn, begun)
        accepted = await turn.calls.delete(VM, turn.job.target)
        return self._later(turn, back, "the deletion of its machine was accepted", accepted.after or timedelta(0))

    def _accepted(self, turn: Turn, accepted: Accepted, trail: Trail) -> Verdict:
        trail = trail._replace(deletes=trail.deletes + 1, looks=0)
        if accepted.gone:
            # What a read has not said is not proven; one that says otherwise again and again is believed less often.
            return self._later(turn, trail, "said to be gone", timedelta(0))
        return self._later(turn, trail, "deletion accepted", accepted.after)

    async def _alive(self, turn: Turn) -> Verdict | None:
        """What else has to be read before: the Node of a machine, and the machine of an interface, by GET."""
        if self._kind is VM:
            await self._protected(turn)
        if self._kind is not NIC:
            return None
        machine = await turn.calls.read(VM, turn.job.target)
        if machine is None:
            return None
        if (left := await self._left_with_machine(turn)) is not None:
            return left
        words = f"virtual machine {machine.name} ({machine.state}), which it belongs to"
        ours = self._judge(turn, VM, machine, "") is None and not machine.going
        if turn.owner.judged or not ours:
            # Its removal takes the interface along; what a sweep found of it, a sweep finds of its machine.
            return Blocked(words)
        # A launch that was under way when its claim went: it gets the same grace as any, in which its Node may speak.
        after, lane = str(turn.trail._replace(machine=machine.guid)), turn.where.lane(VM.removing)
        return Pending(self._settings.grace, f"{words}, goes first", lane=lane, resume=after)

    async def _left_with_machine(self, turn: Turn) -> Left | None:
        return await left_with(self._memory, turn.job, turn.where, turn.where.id(VM.type, turn.job.target))

    async def _protected(self, turn: Turn) -> None:
        name = turn.job.target
        # A Node of Karpenter's has its machine's name, but for the casing.
        found = await self._nodes.protects(turn.owner.source, turn.where.id(VM.type, name), name.lower())
        if found is not None:
            words = f"{name} stays: {found.why}"
            raise NotCleared(words, LIVES, refused=True, waits=found.waits, deletion=turn.job.deletion)

    async def _unfit(self, turn: Turn, found: Found) -> Verdict | None:
        if found.going:
            trail = turn.trail._replace(guid=found.guid, looks=turn.trail.looks + 1)
            return self._later(turn, trail, "it is being deleted")
        if not found.used_by:
            return None
        return await left_with(self._memory, turn.job, turn.where, found.used_by) or Blocked(found.used_by)


class _Turns:
    """The jobs of one batch, side by side."""

    def __init__(self, removal: Removal, tokens: Tokens) -> None:
        self.kind = removal.kind
        self.cleared = set[str]()
        self._removal, self._tokens = removal, tokens

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._removal.draws(lane)

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        cleared = Cleared(batch)
        try:
            return await self._removal.turn(job, cleared, self._tokens)
        finally:
            if cleared.once:
                self.cleared.add(job.id)
