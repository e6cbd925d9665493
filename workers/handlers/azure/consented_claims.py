"""Record of the NodeClaim that consent was given for, by deletion: a job may only delete resources named after that
NodeClaim. The job's record is only a hint: mixed up or forged, it could name resources of a NodeClaim that was never
checked."""

from typing import Final, NamedTuple

from service.contract import Job
from service.contract.azure import resource_name
from workers.handlers.azure.model import AzureOwner
from workers.handlers.protocol import NotCleared

MOST: Final = 5_000
"""Most deletions recorded here, far more than have calls in flight. The oldest are dropped, and recorded again before
their next call."""


class ConsentedClaim(NamedTuple):
    source: str
    claim: str


class ConsentedClaims:
    """Shared by the collector and the handlers of one process."""

    def __init__(self) -> None:
        self._known: dict[str, ConsentedClaim] = {}

    def record(self, deletion: str, consenting: ConsentedClaim) -> None:
        self._known.pop(deletion, None)
        self._known[deletion] = consenting
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def check(self, job: Job, owner: AzureOwner) -> None:
        """To be called right after consent. Raises NotCleared unless the target belongs to that NodeClaim and
        source."""
        given = self._known.get(job.deletion)
        if given is None:
            raise NotCleared("no consent was recorded for its deletion")
        if (fault := name_mismatch(job, given.claim)) is None and owner.source != given.source:
            fault = f"it is of source {owner.source}, and its deletion of source {given.source}"
        if fault is not None:
            raise NotCleared(fault, refused=True, deletion=job.deletion)


def name_mismatch(job: Job, claim: str) -> str | None:
    """Why a job's target is not named after a claim; Azure compares names without case."""
    if job.target.lower() == resource_name(claim).lower():
        return None
    return (
        f"{job.target} is not named after NodeClaim {claim}, whose deletion this is, so it is not touched: the job's "
        f"record was mixed up or forged; `knell jobs abandon` leaves it where it is"
    )
