"""The look right before a destructive call: is the object still going, still ours, and does policy still say delete?
One look serves all jobs of a deletion that ask at the same moment; later ones get a look of their own. Deletions do not
wait for one another."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import timedelta

import msgspec
import structlog

from service.contract import Hold
from service.kubernetes import ClusterError
from service.settings import PolicySettings
from workers.handlers.notes import Note, Tell, silent
from workers.handlers.objects import About, Collector, Facts, Objecting
from workers.handlers.places import Shared
from workers.handlers.protocol import OBJECTED, NotCleared
from workers.judging.inspection import Inspector, Objection
from workers.judging.records import Records
from workers.judging.weighing import weigh

log = structlog.get_logger(__name__)

PATIENCE = timedelta(seconds=30)
"""A cluster that does not answer must not keep jobs, and the slots of a worker, waiting for long. Each of its calls has
a shorter time of its own, which begins when its turn has come."""

NO_RECORD = 5_000
"""Milliseconds until a job whose deletion has no record is looked at again; by then the janitor has seen it."""


class CannotAsk(Exception):
    """The cluster gave no answer, so nothing may be destroyed; the attempt failed and is made again."""


Withdraw = Callable[[str, str], Awaitable[bool]]


class LiveConsent:
    """`detached` are sources of events without a cluster, for which there is no object to look at."""

    def __init__(
        self,
        inspector: Inspector,
        records: Records,
        policy: PolicySettings,
        withdraw: Withdraw,
        *,
        collectors: Mapping[str, Collector] | None = None,
        detached: Collection[str] = (),
        tell: Tell = silent,
    ) -> None:
        self._collectors = dict(collectors or {})
        self._inspector, self._records, self._policy = inspector, records, policy
        self._withdraw, self._detached, self._tell = withdraw, frozenset(detached), tell
        self._looks = Shared[str, Exception | None](self._look)

    async def objection(self, deletion: str) -> Exception | None:
        """What stands against it, where anything does."""
        look = self._looks.ask(deletion)
        # Not a wait for the task itself: when one job is called back, the look goes on for the others.
        await asyncio.wait([look])
        if look.cancelled():
            return NotCleared("the look at its object was called off")
        return look.result()

    async def aclose(self) -> None:
        await self._looks.aclose()

    async def _look(self, deletion: str) -> Exception | None:
        about = await self._records.about_one(deletion)
        if about is None:
            return NotCleared("its deletion has no record that can be read", NO_RECORD)
        if about.withdrawn:
            return NotCleared(f"withdrawn: {about.withdrawn}")
        return await self._ask(about) if about.source not in self._detached else None

    async def _ask(self, about: About) -> Exception | None:
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                # Who may object reads more of the object than its marks.
                facts = await self._inspector.look(about, metadata_only=self._objecting(about.source) is None)
        except (ClusterError, TimeoutError) as error:
            words = str(error) or f"no answer within {PATIENCE.total_seconds():g} s"
            return CannotAsk(f"{about.object} can't be looked at: {type(error).__name__}: {words}")
        try:
            return await self._judge(about, facts)
        except Exception as error:  # noqa: BLE001  # one deletion's trouble is not that of the others in its batch
            return CannotAsk(f"{about.object} can't be judged: {type(error).__name__}: {error}")

    async def _judge(self, about: About, facts: Facts | Objection) -> NotCleared | None:
        if isinstance(facts, Objection):
            if facts.withdrawn:
                return await self._cancel(about, facts.reason)
            return NotCleared(facts.reason, refused=True, waits=facts.waits, deletion=about.deletion)
        decision = weigh(facts, self._policy)
        if decision.kind == "delete":
            return await self._beside_namesake(about, facts) or await self._collector_objects(about, facts)
        if decision.kind == "retain" and decision.mark:
            # Said on the object or its Namespace, not by a changed setting: what is left stays, and it is let go.
            return await self._cancel(about, f"retain: {decision.reason}")
        reason = f"{decision.kind}: {decision.reason}"
        return NotCleared(reason, refused=True, deletion=about.deletion)

    def _objecting(self, source: str) -> Objecting | None:
        collector: object = self._collectors.get(self._inspector.collector_of(source))
        return collector if isinstance(collector, Objecting) else None

    async def _collector_objects(self, about: About, facts: Facts) -> NotCleared | None:
        objecting = self._objecting(about.source)
        if objecting is None:
            return None
        async with asyncio.timeout(PATIENCE.total_seconds()):
            hold = await objecting.objects_to(facts)
        if hold is None:
            return None
        # What it objects to is not on the object itself, so nobody notices when it has passed.
        return NotCleared(hold.reason, OBJECTED, refused=True, waits=hold.waits, deletion=about.deletion)

    async def _beside_namesake(self, about: About, facts: Facts) -> NotCleared | None:
        """A name may have come back since the plan: then what is recognised by it is the other's. What the collector
        would name now tells whether any of it is."""
        if not facts.namesake or about.beside:
            return None
        before = await self._targets(msgspec.structs.replace(facts, namesake=False))
        now = await self._targets(facts)
        if now is not None and now == before:
            return None
        reason = f"another {about.object} lives by now, and what is recognised by that name may be its"
        if now is not None and not now:
            return await self._cancel(about, reason)
        return NotCleared(reason, refused=True, deletion=about.deletion)

    async def _targets(self, facts: Facts) -> set[tuple[str, str, str]] | None:
        """None where nobody can tell."""
        collector = self._collectors.get(facts.settings.collector)
        plan = await collector.collect(facts) if collector is not None else None
        if plan is None or isinstance(plan, Hold):
            return None
        return {(target.kind, target.lane, target.id) for target in plan.targets}

    async def _cancel(self, about: About, why: str) -> NotCleared:
        if await self._withdraw(about.deletion, why):
            log.warning("consent withdrawn, open jobs are cancelled", deletion=about.deletion, reason=why)
            self._tell(Note(about, "ConsentWithdrawn", f"nothing more of it is removed: {why}"))
        return NotCleared(f"withdrawn: {why}")
