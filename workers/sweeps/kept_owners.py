"""Finder of owners in the inventory whose resources a sweep must not touch: they have a deletion of their own, or are
kept. The record of a kept one is removed only after reads show that none of its resources is left."""

import random
from typing import Final

from service.engine.inventory import Inventory
from service.engine.kept_store import KeptStore
from workers.handlers.orphans import OrphanCandidates, OrphanFinder

AT_ONCE: Final = 20
"""Kept owners that are checked in one pass, because each costs several reads."""

_PLACES: Final = "sweep_places"


class UnreadableRecord(Exception):
    """An inventory record can't be decoded, so it is unknown what is kept."""


class KeptOwners:
    """Owners of one source."""

    def __init__(self, inventory: Inventory, finder: OrphanFinder, source: str) -> None:
        self._inventory, self._finder, self._source = inventory, finder, source
        self._kept_store = KeptStore(inventory.installation)

    async def exclude(self, candidates: OrphanCandidates, now: int) -> dict[str, str]:
        """Removes candidates of every owner in the inventory: its own deletion handles them, or they are kept. Returns
        uid and name of kept owners that were gone when the pass began and of which the lists show nothing."""
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
        """Removes the records of those without resources, by reads in every place of the source. Places that the
        settings no longer name can't be read; if there are any, no record is removed."""
        # Read here, after the lists: only then a collector may know in which account it listed.
        places = self._finder.places(self._source)
        current = {place.name for place in places}
        ever = current | set((await self._inventory.state()).get(_PLACES, "").split())
        await self._inventory.save_state({_PLACES: " ".join(sorted(ever))})
        if ever != current:
            return
        # A random sample: those with resources that no list shows must not block the others.
        for uid, name in random.sample(list(finished.items()), min(AT_ONCE, len(finished))):
            if await self._finder.is_absent(self._source, name):
                await self._inventory.remove([uid])
                for place in places:
                    await self._kept_store.remove(f"{place.kept}/{name}", uid)
