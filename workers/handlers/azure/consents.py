"""The NodeClaim that consent was given for, by deletion: a job may only remove what is named after that one.
A job's own record is a hint. Mixed up or forged it may name another claim's resources, whose claim was never asked."""

from typing import Final, NamedTuple

from service.contract import Job
from service.contract.azure import resource_name
from workers.handlers.azure.model import Owner
from workers.handlers.protocol import NotCleared

MOST: Final = 5_000
"""Deletions that are known here, far more than have calls on their way; the oldest are forgotten first, and noted again
before the next call anyway."""


class Consenting(NamedTuple):
    source: str
    claim: str


class Consents:
    """Of one process: whoever asks for consent here is told here whose it was."""

    def __init__(self) -> None:
        self._known: dict[str, Consenting] = {}

    def note(self, deletion: str, consenting: Consenting) -> None:
        self._known.pop(deletion, None)
        self._known[deletion] = consenting
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def check(self, job: Job, owner: Owner) -> None:
        """Right after consent. Raises NotCleared unless the target is that claim's, of that source."""
        given = self._known.get(job.deletion)
        if given is None:
            raise NotCleared("nobody noted whose consent was given")
        if (fault := misnamed(job, given.claim)) is None and owner.source != given.source:
            fault = f"it is of source {owner.source}, and its deletion of source {given.source}"
        if fault is not None:
            raise NotCleared(fault, refused=True, deletion=job.deletion)


def misnamed(job: Job, claim: str) -> str | None:
    """Why a job's target is not named after a claim; Azure compares names without case."""
    if job.target.lower() == resource_name(claim).lower():
        return None
    return (
        f"{job.target} is not named after NodeClaim {claim}, whose deletion this is, so it is not touched: the job's "
        f"record was mixed up or forged; `knell jobs abandon` leaves it where it is"
    )
