"""What the inventory has of NodeClaims that are gone: their own deletions look after it, or it is to stay.
What was to stay is forgotten only when reads of it say that nothing is left."""

import random
from collections.abc import Sequence
from typing import Final

import structlog

from service.engine.inventory import Inventory
from service.engine.kept import KeptMemory
from service.settings import AzureNodes
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.keeping import place_of
from workers.handlers.azure.kinds import NIC, VM
from workers.handlers.azure.listing import Lister
from workers.handlers.azure.model import Where
from workers.sweeps.candidates import Candidates

log = structlog.get_logger(__name__)
AT_ONCE: Final = 20
"""Of those of which nothing seems to be left, so many are looked for in one pass: each costs reads."""

_PLACES: Final = "sweep_places"


class UnreadableRecord(Exception):
    """Nobody knows what is to stay."""


class Keeping:
    """Of one source."""

    def __init__(self, inventory: Inventory, lister: Lister, nodes: Sequence[AzureNodes]) -> None:
        self._inventory, self._lister, self._nodes = inventory, lister, nodes
        self._memory = KeptMemory(inventory.installation)

    async def spare(self, candidates: Candidates, now: int) -> dict[str, str]:
        """What a NodeClaim left that the inventory knows is its own deletion's, or is to stay; also where nobody has
        noticed yet that it is gone: its marks count then, not ours. Answers uids and names of those that were to stay,
        were gone when the pass began, and of which the lists have nothing."""
        names, finished = candidates.names(), dict[str, str]()
        async for part in self._inventory.scan():
            for uid, record in part:
                if record is None:
                    raise UnreadableRecord(f"the inventory's record of uid {uid} can't be read")
                candidates.lives(record.name)
                if record.kept and 0 < record.gone < now and record.name not in names:
                    finished[uid] = record.name
        return finished

    async def forget(self, finished: dict[str, str]) -> None:
        """Those that nothing is left of, by GET in every group of the source. A group that was named once and is not
        any more can't be asked: then nothing is forgotten."""
        current = {f"{one.subscription}/{one.resource_group}".lower() for one in self._nodes}
        ever = current | set((await self._inventory.facts()).get(_PLACES, "").split())
        await self._inventory.note({_PLACES: " ".join(sorted(ever))})
        if ever != current:
            return
        # Any of them: those whose leftovers no list shows must not keep the others from their turn.
        for uid, name in random.sample(list(finished.items()), min(AT_ONCE, len(finished))):
            if await self._is_absent(name):
                await self._inventory.forget([uid])
                for nodes in self._nodes:
                    await self._memory.forget(f"{place_of(nodes)}/{name}", uid)

    async def _is_absent(self, claim: str) -> bool:
        try:
            for nodes in self._nodes:
                for kind in (VM, NIC):
                    if await self._lister.find(kind, Where.of(nodes), claim) is not None:
                        return False
        except AzureError as error:
            log.info("not known whether anything is left of what was to stay", claim=claim, reason=str(error))
            return False
        return True
