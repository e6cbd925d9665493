"""What the last look at each object said of it: the tasks that are wanted, and whose resources are meant.
A plan is older than the calls that it leads to: what is not wanted any more is left, what is meant by now is named."""

from typing import Final

import msgspec

from service.contract import Blocked, Job, Refused
from service.contract.aws import Task
from workers.handlers.aws.model import Kind, Owner, Turn
from workers.handlers.aws.owners import Subject
from workers.handlers.protocol import OBJECTED, Batch, NotCleared

CONTROLLER_TASK: Final[Task] = "aws-load-balancer-controller"

MOST: Final = 50_000
"""Deletions that are known here; the oldest are forgotten first, and asked about again before the next call anyway."""

SELDOM: Final = 4
"""In so many rounds of waiting a job that does nothing but wait asks once whether it is still wanted."""

_owner: Final = msgspec.json.Decoder(Owner)


class Unwanted(Exception):
    """It is there, and nobody wants it removed any more; the message says since what."""


class Terms(msgspec.Struct, frozen=True):
    """An object as it is now, and what is to be done for it."""

    subject: Subject
    tasks: tuple[Task, ...]


class Wanting:
    """Of one process: whoever asks for consent here is told here what it was given for."""

    def __init__(self) -> None:
        self._known: dict[str, Terms] = {}

    def note(self, deletion: str, terms: Terms) -> None:
        self._known.pop(deletion, None)
        self._known[deletion] = terms
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
        return msgspec.structs.replace(owner, spared=terms.subject.spared), terms.tasks

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


def is_doubtful(job: Job, ready: object) -> bool:
    """Whether it is time to ask for one that may never come to a call: something is in its way, or it is refused."""
    if not isinstance(ready, Turn | Blocked | Refused):
        return False
    record = job.record
    return record.verdict == "refused" or (record.verdict == "blocked" and record.waits % SELDOM == 0)


def _the_same(job: Job, owner: Owner, subject: Subject) -> None:
    """An object that was changed since the plan means other resources: a person has to say which."""
    planned = {"region": owner.whose.region, "identity": owner.whose.identity, "name in tags": owner.name}
    now = {"region": subject.region, "identity": subject.identity, "name in tags": subject.name}
    if owner.vpc and subject.vpc:
        planned["VPC"], now["VPC"] = owner.vpc, subject.vpc
    for what, before in planned.items():
        if now[what] != before:
            raise NotCleared(
                f"the {what} of {subject.called} is {now[what] or 'none'}, and was {before or 'none'} when this was "
                f"planned; set it back, or abandon the job",
                OBJECTED,
                refused=True,
                deletion=job.deletion,
            )
