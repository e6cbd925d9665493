"""Latest state of each object under deletion: the tasks that it wants and the owner of its resources. A plan is older
than the calls it leads to: resources that are no longer wanted are left, and changes of the object count."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec

from service.contract import Blocked, Job, Pending, Refused
from service.contract.aws import Task
from workers.handlers.aws.capa.capa_object import CapaObject
from workers.handlers.aws.model import AwsAttempt, AwsKind, CapaCluster
from workers.handlers.protocol import RECHECK_AFTER, Batch, NotCleared

CONTROLLER_TASK: Final[Task] = "aws-load-balancer-controller"

BOTH_GROUP_TASKS: Final = frozenset[Task]({"security-group", CONTROLLER_TASK})
"""Tasks that together delete all security groups of a cluster, under either tag."""

BALANCER_TASK: Final[Task] = "load-balancer"
"""The task without which the cloud provider's load balancers and their listeners stay."""

MAX_DELETIONS: Final = 5_000
"""Deletions tracked, far more than have calls in flight; the oldest are dropped first, and read again before the next
call."""

RECHECK_EVERY: Final = 4
"""A blocked job rechecks once in this many rounds whether it is still wanted."""

RECHECK_INTERVAL: Final = timedelta(minutes=1)
"""How often a job that only waits for completion rechecks."""

_owner: Final = msgspec.json.Decoder(CapaCluster)


class NoLongerWanted(Exception):
    """The resource exists, but its deletion is no longer wanted; the message says why."""


class ObjectState(msgspec.Struct, frozen=True):
    """An object as last read and its tasks; `abandoned` are resources that were abandoned since."""

    subject: CapaObject
    tasks: tuple[Task, ...]
    abandoned: tuple[str, ...] = ()


class LatestObjects:
    """State of one process: the consent check records it, and the handlers that asked for consent use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, ObjectState] = {}
        # Jobs that only wait, ordered by their last recheck.
        self._last_rechecks: dict[str, float] = {}

    def record(self, deletion: str, state: ObjectState) -> None:
        # Annotations may be large (`kubectl apply`) and are not needed any more.
        lean = msgspec.structs.replace(state.subject, annotations={})
        self._known.pop(deletion, None)
        self._known[deletion] = msgspec.structs.replace(state, subject=lean)
        if len(self._known) > MAX_DELETIONS:
            del self._known[next(iter(self._known))]

    async def confirm(
        self, batch: Batch, job: Job, owner: CapaCluster, tasks: tuple[Task, ...]
    ) -> tuple[CapaCluster, tuple[Task, ...]]:
        """Owner and tasks of a plan, updated to what the object says now. Raises NotCleared, also if the object now
        means other resources."""
        await batch.clear(job)
        state = self._known.get(job.deletion)
        if state is None:
            return owner, tasks
        _require_unchanged(job, owner, state.subject)
        return self.updated(job.deletion, owner), state.tasks

    def updated(self, deletion: str, owner: CapaCluster) -> CapaCluster:
        """The owner by the latest read, which may be a while ago: ask for consent first where it matters."""
        state = self._known.get(deletion)
        if state is None:
            return owner
        both, balancers = {*state.tasks} >= BOTH_GROUP_TASKS, BALANCER_TASK in state.tasks
        return msgspec.structs.replace(
            owner,
            # The VPC may have been set since the plan.
            vpc=owner.vpc or state.subject.vpc,
            spared=(*state.subject.spared, *state.abandoned),
            both=both,
            balancers=balancers,
            adopted=state.subject.adopted,
        )

    def object_of(self, deletion: str) -> CapaObject | None:
        """The object as last read, without its annotations."""
        state = self._known.get(deletion)
        return None if state is None else state.subject

    def should_recheck(self, job: Job, prepared: object) -> bool:
        """Whether a job that may not reach a call for long should ask for consent now: it is blocked, refused, or waits
        for a slow operation."""
        record = job.record
        if record.verdict == "check":
            return isinstance(prepared, AwsAttempt | Pending) and self._is_check_due(job.id)
        if not isinstance(prepared, AwsAttempt | Blocked | Refused):
            return False
        return record.verdict == "refused" or (record.verdict == "blocked" and record.waits % RECHECK_EVERY == 0)

    def _is_check_due(self, job: str) -> bool:
        now, long = self._clock(), RECHECK_INTERVAL.total_seconds()
        # A job that still waits has rechecked meanwhile, however slow its lane: older entries are finished jobs.
        while (
            self._last_rechecks
            and now - (first := next(iter(self._last_rechecks.items())))[1] > 15 * long
            and first[0] != job
        ):
            del self._last_rechecks[first[0]]
        if now - self._last_rechecks.setdefault(job, now) < long:
            return False
        del self._last_rechecks[job]
        self._last_rechecks[job] = now
        return True

    def checked_batch(self, batch: Batch, kind: AwsKind) -> "CheckedBatch":
        return CheckedBatch(batch, kind, self._known)


class CheckedBatch:
    """A batch that gives consent only for what is still wanted."""

    def __init__(self, batch: Batch, kind: AwsKind, known: dict[str, ObjectState]) -> None:
        self.lane, self.jobs, self.report_quota, self.unused = batch.lane, batch.jobs, batch.report_quota, batch.unused
        self._batch, self._kind, self._known = batch, kind, known

    async def clear(self, *jobs: Job) -> None:
        """Also raises NoLongerWanted."""
        await self._batch.clear(*jobs)
        for job in jobs:
            if (state := self._known.get(job.deletion)) is not None:
                owner = _owner.decode(job.data)
                _require_unchanged(job, owner, state.subject)
                task = CONTROLLER_TASK if owner.by == "lbc" else self._kind.task
                if task not in state.tasks:
                    raise NoLongerWanted(f"left where it is: task {task} is not wanted any more")
                if job.target in state.subject.spared:
                    raise NoLongerWanted("left where it is: by now it is named in the object's spec, as the user's own")


def _require_unchanged(job: Job, owner: CapaCluster, subject: CapaObject) -> None:
    """An object changed since the plan means other resources: an operator has to decide."""
    planned = {"region": owner.scope.region, "identity": owner.scope.identity, "name in tags": owner.name}
    now = {"region": subject.region, "identity": subject.identity, "name in tags": subject.name}
    if owner.vpc:
        # Also if the object names none any more. A VPC that was set after the plan changes nothing for targets planned
        # without one.
        planned["VPC"], now["VPC"] = owner.vpc, subject.vpc
    for what, before in planned.items():
        if now[what] != before:
            raise NotCleared(
                f"the {what} of {subject.label} is {now[what] or 'none'}, and was {before or 'none'} when this was "
                f"planned, so it is unknown whether it is still meant: set it back, or abandon the job "
                f"(`knell jobs abandon`), which leaves this where it is",
                RECHECK_AFTER,
                refused=True,
                deletion=job.deletion,
            )
