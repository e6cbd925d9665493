"""Finder of NodeClaims in the inventory whose resources a sweep must not touch: they have a deletion of their own, or
are kept. The record of a kept one is removed only after reads show that none of its resources is left."""

import random
from collections.abc import Sequence
from typing import Final

import structlog

from service.engine.inventory import Inventory
from service.engine.kept_store import KeptStore
from service.settings import AzureNodes
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.kept_tagging import place_of
from workers.handlers.azure.kinds import NIC, VM
from workers.handlers.azure.listing import AzureLister
from workers.handlers.azure.model import AzureScope
from workers.sweeps.candidates import OrphanCandidates

log = structlog.get_logger(__name__)
AT_ONCE: Final = 20
"""Kept NodeClaims that are checked in one pass, because each costs several reads."""

_PLACES: Final = "sweep_places"


class UnreadableRecord(Exception):
    """An inventory record can't be decoded, so it is unknown what is kept."""


class KeptClaims:
    """NodeClaims of one source."""

    def __init__(self, inventory: Inventory, lister: AzureLister, nodes: Sequence[AzureNodes]) -> None:
        self._inventory, self._lister, self._nodes = inventory, lister, nodes
        self._kept_store = KeptStore(inventory.installation)

    async def exclude(self, candidates: OrphanCandidates, now: int) -> dict[str, str]:
        """Removes candidates of every NodeClaim in the inventory: its own deletion handles them, or they are kept.
        Returns uid and name of kept NodeClaims that were gone when the pass began and of which the lists show
        nothing."""
        names, finished = candidates.names(), dict[str, str]()
        async for part in self._inventory.scan():
            for uid, record in part:
                if record is None:
                    raise UnreadableRecord(f"the inventory's record of uid {uid} can't be read")
                candidates.remove(record.name)
                if record.kept and 0 < record.gone < now and record.name not in names:
                    finished[uid] = record.name
        return finished

    async def forget(self, finished: dict[str, str]) -> None:
        """Removes the records of those without resources, by GET in every group of the source. Groups that the settings
        no longer name can't be read; if there are any, no record is removed."""
        current = {f"{one.subscription}/{one.resource_group}".lower() for one in self._nodes}
        ever = current | set((await self._inventory.state()).get(_PLACES, "").split())
        await self._inventory.save_state({_PLACES: " ".join(sorted(ever))})
        if ever != current:
            return
        # A random sample: those with resources that no list shows must not block the others.
        for uid, name in random.sample(list(finished.items()), min(AT_ONCE, len(finished))):
            if await self._is_absent(name):
                await self._inventory.remove([uid])
                for nodes in self._nodes:
                    await self._kept_store.remove(f"{place_of(nodes)}/{name}", uid)

    async def _is_absent(self, claim: str) -> bool:
        try:
            for nodes in self._nodes:
                for kind in (VM, NIC):
                    if await self._lister.find(kind, AzureScope.of(nodes), claim) is not None:
                        return False
        except AzureError as error:
            log.info("not known whether anything is left of what was to stay", claim=claim, reason=str(error))
            return False
        return True
