"""Check for resources that stay because the machine or interface using them was abandoned in the same deletion.
It is made only for resources in use, so the usual removal needs no further read of Redis."""

from collections.abc import Mapping
from typing import Final

import msgspec

from service.contract import Job, Left
from service.contract.jobs import JobRecord
from workers.collectors.karpenter_azure.claim import KarpenterClaim
from workers.handlers.kept_resources import KeptRecords
from workers.providers.azure.kinds import NIC, VM, AzureKind
from workers.providers.azure.model import AzureScope

_claim: Final = msgspec.json.Decoder(KarpenterClaim)

_KEPT_BY: Final[Mapping[str, tuple[AzureKind, ...]]] = {VM.type: (VM,), NIC.type: (VM, NIC)}
"""By the type of the using resource, the kinds whose abandoned job keeps it: an interface stays with its machine."""


async def left_with_abandoned(kept_records: KeptRecords, job: Job, where: AzureScope, user: str) -> Left | None:
    """Verdict for a target that is used by `user`, an Azure id; None if that was not abandoned. An abandoned job that
    can't be decoded may be about any of them."""
    kinds = next((kinds for type_, kinds in _KEPT_BY.items() if _is_part(user, where.id(type_, job.target))), ())
    if not kinds:
        return None
    found = await kept_records.abandoned(job.deletion)
    names = {kind.name for kind in kinds}
    if not found.unknown and not any(one.kind in names and _is_of(one, job, where) for one in found.jobs):
        return None
    return Left(f"{job.target} stays: {user} uses it, and the job of that was abandoned")


def _is_part(user: str, whole: str) -> bool:
    """An address is used by a configuration of its interface."""
    return f"{user.lower()}/".startswith(f"{whole}/")


def _is_of(record: JobRecord, job: Job, where: AzureScope) -> bool:
    """One deletion may have targets of the same name in several groups."""
    if record.target.lower() != job.target.lower():
        return False
    try:
        its = _claim.decode(record.data).where
    except msgspec.DecodeError:
        return True
    return (its.subscription, its.group) == (where.subscription, where.group)
