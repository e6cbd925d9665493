"""Resources that stay because the machine or interface that uses them was abandoned in the same deletion.
Asked only where something is in use, so that the usual removal costs no further read of Redis."""

from collections.abc import Mapping
from typing import Final

import msgspec

from service.contract import Job, Left
from service.contract.jobs import Record
from workers.handlers.azure.kinds import NIC, VM, Kind
from workers.handlers.azure.model import Owner, Where
from workers.handlers.memory import Memory

_owner: Final = msgspec.json.Decoder(Owner)

_KEPT_BY: Final[Mapping[str, tuple[Kind, ...]]] = {VM.type: (VM,), NIC.type: (VM, NIC)}
"""By the type of the user, the kinds whose abandoned job keeps it: an interface stays with its machine."""


async def left_with(memory: Memory, job: Job, where: Where, user: str) -> Left | None:
    """The verdict for a target that `user` uses, which is an id on Azure; None where nobody abandoned that. What was
    abandoned but can't be decoded may be any of them."""
    kinds = next((kinds for type_, kinds in _KEPT_BY.items() if _is_part(user, where.id(type_, job.target))), ())
    if not kinds:
        return None
    found = await memory.abandoned(job.deletion)
    names = {kind.name for kind in kinds}
    if not found.unknown and not any(one.kind in names and _is_of(one, job, where) for one in found.jobs):
        return None
    return Left(f"{job.target} stays: {user} uses it, and the job of that was abandoned")


def _is_part(user: str, whole: str) -> bool:
    """An address is used by a configuration of its interface."""
    return f"{user.lower()}/".startswith(f"{whole}/")


def _is_of(record: Record, job: Job, where: Where) -> bool:
    """One deletion may have targets of the same name in several groups."""
    if record.target.lower() != job.target.lower():
        return False
    try:
        its = _owner.decode(record.data).where
    except msgspec.DecodeError:
        return True
    return (its.subscription, its.group) == (where.subscription, where.group)
