"""Removes resources of one kind: reads a batch at once, judges whose each is, deletes, and proves absence later.
Every turn begins with a read, so that a crash between a call and its record repeats what does no harm."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from service.contract import Blocked, Draw, Job, Left, Refused, Verdict
from service.settings.aws import AwsSettings
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.lanes import lane_draws
from workers.handlers.aws.model import Kind, Overtaken, Reach, Turn
from workers.handlers.aws.ownership import older
from workers.handlers.aws.readying import Ready, Readying, later, meaning
from workers.handlers.aws.wanting import Unwanted, Wanting
from workers.handlers.freshness import Outdated, comes_again
from workers.handlers.protocol import Batch, NotCleared
from workers.handlers.single import Single
from workers.handlers.tokens import Cleared, Tokens


class Removal:
    """The handler of one kind. `wanting` is what the collector of the same process keeps of its looks at objects."""

    def __init__(self, kind: Kind, reach: Reach, settings: AwsSettings, wanting: Wanting | None = None) -> None:
        self.kind, self._wanting = kind.name, wanting or Wanting()
        self._kind, self._readying = kind, Readying(kind, reach, settings, self._wanting)

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return lane_draws(lane)

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        jobs = len(batch.jobs)
        tokens = Tokens(batch, lane_draws(batch.lane) or (), jobs)
        try:
            readied = await self._readying.ready(batch, tokens)
            async for job, verdict in Single(_Turns(self, readied, tokens)).attempt(batch):
                jobs -= 1
                yield job, verdict
        except asyncio.CancelledError:
            # Those without a verdict are handed back by the runtime, and what was reserved for them, too.
            for _ in range(jobs):
                tokens.handed_back()
            raise
        finally:
            tokens.give_back()

    def cleared(self, batch: Batch) -> Cleared:
        """For one job: what is cleared is also still wanted."""
        return Cleared(self._wanting.asking(batch, self._kind))

    def is_doubtful(self, job: Job, ready: Ready) -> bool:
        return self._wanting.is_doubtful(job, ready)

    async def act(self, turn: Turn) -> Verdict:
        operation = turn.batch.lane.rpartition("/")[2]
        step = self._kind.steps.get(operation)
        if step is not None:
            return await step.act(turn)
        if operation != self._kind.operation:
            return turn.hop(self._kind.operation, "nothing is done to it in this lane")
        against = await self._kind.before(turn) if self._kind.before is not None else None
        return against or await self._delete(turn)

    async def _delete(self, turn: Turn) -> Verdict:
        kind = self._kind
        born = kind.born(turn.found) if kind.born is not None else ""
        await turn.clear()
        try:
            await kind.delete(turn.calls, turn.found)
        except AwsError as error:
            if error.what == "gone" or error.code in kind.gone:
                # What a read has not said is not proven.
                return later(turn, kind, f"said to be gone: {error.code}", born)
            depends = error.what == "depends" or error.code in kind.depends
            if depends and kind.blocked is not None:
                return await kind.blocked(turn, error)
            if depends:
                return Blocked(str(error), unseen=True)
            if error.what == "protected" and kind.protected is not None:
                return await kind.protected(turn, error)
            raise
        return later(turn, kind, "deleted", born)


class _Turns:
    """The jobs of one batch, side by side, with what was read for all of them."""

    def __init__(self, removal: Removal, readied: dict[str, Ready], tokens: Tokens) -> None:
        self.kind = removal.kind
        self._removal, self._readied, self._tokens = removal, readied, tokens

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._removal.draws(lane)

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        ready = await self._turn(job, self._readied[job.id], self._removal.cleared(batch))
        if isinstance(ready, Exception):
            raise ready
        return ready

    async def _turn(self, job: Job, ready: Ready, batch: Cleared) -> Verdict | Exception:
        try:
            if self._removal.is_doubtful(job, ready):
                await batch.clear(job)
            if not isinstance(ready, Turn):
                return ready
            # The reads for a whole batch may have taken long: then this job has some of its own.
            turn = await replace(ready, batch=batch).renewed()
            if older(turn.found, turn.owner, turn.settings) and (
                why := older(turn.found, await turn.live(), turn.settings)
            ):
                # As the object says by now: a person may have adopted it since the plan.
                return Refused(why)
            return await self._removal.act(turn)
        except Overtaken as overtaken:
            return overtaken.found
        except Outdated as outdated:
            return comes_again(outdated)
        except Unwanted as unwanted:
            return Left(str(unwanted))
        except NotCleared:
            if not batch.once:
                self._tokens.handed_back()
            raise
        except (AwsError, NoAccess) as error:
            return meaning(error)
