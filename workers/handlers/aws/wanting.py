"""What the last look at each object said of it: the tasks that are wanted, and whose resources are meant.
A plan is older than the calls that it leads to: what is not wanted any more is left, what is meant by now is named."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec

from service.contract import Blocked, Job, Pending, Refused
from service.contract.aws import Task
from workers.handlers.aws.model import Kind, Owner, Turn
from workers.handlers.aws.owners import Subject
from workers.handlers.protocol import OBJECTED, Batch, NotCleared

CONTROLLER_TASK: Final[Task] = "aws-load-balancer-controller"

BOTH: Final = frozenset[Task]({"security-group", CONTROLLER_TASK})
"""Tasks with which all of a cluster's security groups go, under whichever tag."""

BALANCERS: Final[Task] = "load-balancer"
"""The task without which the cloud provider's balancers stay, and their listeners with them."""

MOST: Final = 5_000
"""Deletions that are known here, far more than have calls on their way; the oldest are forgotten first, and asked about
again before the next call anyway."""

SELDOM: Final = 4
"""In so many rounds of waiting a job that something stands in the way of asks once whether it is still wanted."""

CHECKS: Final = timedelta(minutes=1)
"""So often asks a job that does nothing but look whether something has come to its end."""

_owner: Final = msgspec.json.Decoder(Owner)


class Unwanted(Exception):
    """It is there, and nobody wants it removed any more; the message says since what."""


class Terms(msgspec.Struct, frozen=True):
    """An object as it is now, and what is to be done for it; `abandoned` are resources that a person gave up since."""

    subject: Subject
    tasks: tuple[Task, ...]
    abandoned: tuple[str, ...] = ()


class Wanting:
    """Of one process: whoever asks for consent here is told here what it was given for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, Terms] = {}
        # Jobs that only look, the one that last asked or began to look longest ago first.
        self._looking: dict[str, float] = {}

    def note(self, deletion: str, terms: Terms) -> None:
        # Annotations may be large, with all that `kubectl apply` writes there, and say nothing more by now.
        lean = msgspec.structs.replace(terms.subject, annotations={})
        self._known.pop(deletion, None)
        self._known[deletion] = msgspec.structs.replace(terms, subject=lean)
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    async def live(
        self, batch: Batch, job: Job, owner: Owner, tasks: tuple[Task, ...]
    ) -> tuple[Owner, tuple[Task, ...]]:
        """What a plan said, as it is wanted now. Raises NotCleared, also where the object means other resources."""
        await batch.clear(job)
        terms = self._known.get(job.deletion)
        if terms is None:
            return owner, tasks
        _the_same(job, owner, terms.subject)
        return self.latest(job.deletion, owner), terms.tasks

    def latest(self, deletion: str, owner: Owner) -> Owner:
        """As the last look has it, which may be a while ago: what depends on it is cleared first."""
        terms = self._known.get(deletion)
        if terms is None:
            return owner
        both, balancers = {*terms.tasks} >= BOTH, BALANCERS in terms.tasks
        return msgspec.structs.replace(
            owner,
            # One that a person named since the plan, which was made without any.
            vpc=owner.vpc or terms.subject.vpc,
            spared=(*terms.subject.spared, *terms.abandoned),
            both=both,
            balancers=balancers,
            adopted=terms.subject.adopted,
        )

    def subject(self, deletion: str) -> Subject | None:
        """The object as the last look saw it, but for its annotations."""
        terms = self._known.get(deletion)
        return None if terms is None else terms.subject

    def is_doubtful(self, job: Job, ready: object) -> bool:
        """Whether it is time to ask for one that may not come to a call for long: something is in its way, it is
        refused, or what was begun takes hours."""
        record = job.record
        if record.verdict == "check":
            return isinstance(ready, Turn | Pending) and self._looks_for_long(job.id)
        if not isinstance(ready, Turn | Blocked | Refused):
            return False
        return record.verdict == "refused" or (record.verdict == "blocked" and record.waits % SELDOM == 0)

    def _looks_for_long(self, job: str) -> bool:
        now, long = self._clock(), CHECKS.total_seconds()
        # Who still looks has asked meanwhile, however seldom its lane is served: the others have come to their end.
        while self._looking and now - (first := next(iter(self._looking.items())))[1] > 15 * long and first[0] != job:
            del self._looking[first[0]]
        if now - self._looking.setdefault(job, now) < long:
            return False
        del self._looking[job]
        self._looking[job] = now
        return True

    def asking(self, batch: Batch, kind: Kind) -> "Asking":
        return Asking(batch, kind, self._known)


class Asking:
    """A batch whose jobs are cleared only for what is still wanted."""

    def __init__(self, batch: Batch, kind: Kind, known: dict[str, Terms]) -> None:
        self.lane, self.jobs, self.tell, self.unused = batch.lane, batch.jobs, batch.tell, batch.unused
        self._batch, self._kind, self._known = batch, kind, known

    async def clear(self, *jobs: Job) -> None:
        """Raises Unwanted, too."""
        await self._batch.clear(*jobs)
        for job in jobs:
            if (terms := self._known.get(job.deletion)) is not None:
                owner = _owner.decode(job.data)
                _the_same(job, owner, terms.subject)
                task = CONTROLLER_TASK if owner.by == "lbc" else self._kind.task
                if task not in terms.tasks:
                    raise Unwanted(f"left where it is: task {task} is not wanted any more")
                if job.target in terms.subject.spared:
                    raise Unwanted("left where it is: by now it is named in the object's spec, as the user's own")


def _the_same(job: Job, owner: Owner, subject: Subject) -> None:
    """An object that was changed since the plan means other resources: a person has to say which."""
    planned = {"region": owner.whose.region, "identity": owner.whose.identity, "name in tags": owner.name}
    now = {"region": subject.region, "identity": subject.identity, "name in tags": subject.name}
    if owner.vpc:
        # Also where none is named any more. One that is named only by now takes nothing from what was planned without.
        planned["VPC"], now["VPC"] = owner.vpc, subject.vpc
    for what, before in planned.items():
        if now[what] != before:
            raise NotCleared(
                f"the {what} of {subject.called} is {now[what] or 'none'}, and was {before or 'none'} when this was "
                f"planned, so nobody can tell whether it is still meant: set it back, or abandon the job "
                f"(`knell jobs abandon`), which leaves this where it is",
                OBJECTED,
                refused=True,
                deletion=job.deletion,
            )
