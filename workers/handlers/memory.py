"""What collectors and handlers may ask of the memory of decisions; they know nothing of where it is kept."""

from typing import Protocol

from service.contract.kept import NOTHING_ABANDONED, Abandoned


class Memory(Protocol):
    async def abandoned(self, deletion: str) -> Abandoned:
        """What a person abandoned of this deletion."""


class NoMemory:
    """For whoever only shows a plan: nothing was ever decided."""

    async def abandoned(self, deletion: str) -> Abandoned:
        del deletion
        return NOTHING_ABANDONED
