"""Latest state of each object under deletion: the tasks that it wants and its claim to resources. A plan is older than
the calls it leads to: resources that are no longer wanted are left, and changes of the object count."""

from datetime import UTC, datetime
from typing import Final

import msgspec

from service.contract import Job
from service.sources.capa import Task
from workers.collectors.capa.capa_object import CapaObject
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.kinds import BALANCER_TASK, BOTH_GROUP_TASKS, CAPA_KINDS, CONTROLLER_TASK
from workers.handlers.protocol import RECHECK_AFTER, Batch, NotCleared
from workers.providers.aws.claims import MAX_DELETIONS, NoLongerWanted

RETRY_SOON: Final = 2_000
"""Milliseconds until consent is asked for again, which records the object."""


class ObjectState(msgspec.Struct, frozen=True, kw_only=True):
    """An object as last read, its source in the settings, the account that its identity leads to, and its tasks;
    `abandoned` are resources that were abandoned since."""

    subject: CapaObject
    source: str
    account: str
    tasks: tuple[Task, ...]
    abandoned: tuple[str, ...] = ()


class LatestObjects:
    """State of one process: the consent check records it, and the handlers that asked for consent use it. As many
    deletions are tracked as consents; the oldest are dropped first, and read again before the next call."""

    def __init__(self) -> None:
        self._known: dict[str, ObjectState] = {}

    def record(self, deletion: str, state: ObjectState) -> None:
        # Annotations may be large (`kubectl apply`) and are not needed any more.
        lean = msgspec.structs.replace(state.subject, annotations={})
        self._known.pop(deletion, None)
        self._known[deletion] = msgspec.structs.replace(state, subject=lean)
        if len(self._known) > MAX_DELETIONS:
            del self._known[next(iter(self._known))]

    async def confirm(
        self, batch: Batch, job: Job, claim: CapaClaim
    ) -> tuple[CapaClaim, tuple[Task, ...]]:  # fmt: skip
        """The claim of a plan and the tasks, updated to what the object says now. Raises NotCleared, also if the object
        now means other resources."""
        await batch.clear(job)
        state = self._recorded(job)
        _require_unchanged(job, claim, state)
        return self.updated(job.deletion, claim), state.tasks

    def updated(self, deletion: str, claim: CapaClaim) -> CapaClaim:
        """The claim by the latest read, which may be a while ago: ask for consent first where it matters."""
        state = self._known.get(deletion)
        if state is None:
            return claim
        both, balancers = {*state.tasks} >= BOTH_GROUP_TASKS, BALANCER_TASK in state.tasks
        return msgspec.structs.replace(
            claim,
            # The VPC may have been set since the plan.
            vpc=claim.vpc or state.subject.vpc,
            spared=(*state.subject.spared, *state.abandoned),
            both=both,
            balancers=balancers,
            adopted=state.subject.adopted,
        )

    def object_of(self, deletion: str) -> CapaObject | None:
        """The object as last read, without its annotations."""
        state = self._known.get(deletion)
        return None if state is None else state.subject

    def require_wanted(self, job: Job, claim: CapaClaim) -> None:
        """Called after consent, which has recorded the object. Raises NoLongerWanted, and NotCleared if the object now
        means other resources, or is not recorded."""
        state = self._recorded(job)
        _require_unchanged(job, claim, state)
        row = CAPA_KINDS.get(job.kind)
        if row is None:
            # Not a kind of resource that a cluster owns, as the check of ownership says.
            return
        task = CONTROLLER_TASK if claim.by == "lbc" else row.task
        if task not in state.tasks:
            raise NoLongerWanted(f"left where it is: task {task} is not wanted any more")
        if job.target in state.subject.spared:
            raise NoLongerWanted("left where it is: by now it is named in the object's spec, as the user's own")

    def _recorded(self, job: Job) -> ObjectState:
        state = self._known.get(job.deletion)
        if state is None:
            raise NotCleared("its object was not recorded when its deletion was consented to", RETRY_SOON)
        return state


def _time_of(made: int) -> str:
    """Empty for 0: by a claim without a creation time no resource is too old."""
    return datetime.fromtimestamp(made / 1000, UTC).isoformat() if made else ""


def _require_unchanged(job: Job, claim: CapaClaim, state: ObjectState) -> None:
    """An object changed since the plan, or a claim that is not of this object, means other resources: an operator has
    to decide."""
    subject, scope = state.subject, claim.scope
    planned = {
        "source": scope.source, "namespace": scope.namespace, "account": claim.account, "region": scope.region,
        "identity": scope.identity, "name in tags": claim.name, "creation time": _time_of(claim.made),
    }  # fmt: skip
    now = {
        "source": state.source, "namespace": subject.namespace, "account": state.account, "region": subject.region,
        "identity": subject.identity, "name in tags": subject.name, "creation time": _time_of(subject.made),
    }  # fmt: skip
    if claim.vpc:
        # Also if the object names none any more. A VPC that was set after the plan changes nothing for targets planned
        # without one.
        planned["VPC"], now["VPC"] = claim.vpc, subject.vpc
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
