"""Puts the Azure side of a worker together: clients, the collector, a handler for every kind, and the lister of sweeps.
It is imported only by a process that has such sources, because the SDK behind it is large."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from service.contract import Target
from service.settings import Settings
from workers.handlers.azure.calls import AzureCalls
from workers.handlers.azure.clients import Clients
from workers.handlers.azure.collector import KarpenterCollector
from workers.handlers.azure.consents import Consents
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.keeping import Keeping
from workers.handlers.azure.kinds import KINDS
from workers.handlers.azure.listing import Lister
from workers.handlers.azure.meters import QuotaMeter
from workers.handlers.azure.model import Meter, Owner, Quota, Where
from workers.handlers.azure.nodes import Nodes
from workers.handlers.azure.removal import Removal
from workers.handlers.azure.retained_tags import AzureRetainedTags
from workers.handlers.memory import Memory
from workers.handlers.places import Places
from workers.handlers.protocol import Handler

_KINDS: Final = {kind.name: kind for kind in KINDS}

MARKS_WAIT: Final = timedelta(seconds=5)
"""How long a call that marks what stays waits for room in the budget: the release comes back later for longer waits."""


There = Callable[[Target], Awaitable[bool | None]]
"""Whether a target is there, by one read; None where Azure gives no answer to that. Removes nothing, proves nothing."""


class AzureSide(NamedTuple):
    collector: KarpenterCollector
    handlers: tuple[Handler, ...]
    lister: Lister
    retained_tags: AzureRetainedTags
    there: There


@asynccontextmanager
async def azure_side(
    settings: Settings, places: Places, quota: Quota | None, memory: Memory | None = None
) -> AsyncIterator[AzureSide]:
    """`quota` is for calls that no lane has drawn for; without one they are made as they come. `memory` knows what was
    abandoned or decided to be kept."""
    azure = settings.azure
    async with Clients(azure.endpoint) as clients:
        nodes = Nodes(places, azure.not_ready)

        def calling(where: Where, meter: Meter) -> AzureCalls:
            return AzureCalls(clients, where, meter, azure.reserve)

        consents = Consents()
        handlers = tuple(Removal(kind, calling, nodes, azure, consents, memory) for kind in KINDS)

        def paced(where: Where) -> AzureCalls:
            return calling(where, QuotaMeter(where, quota))

        def urgent(where: Where) -> AzureCalls:
            return calling(where, QuotaMeter(where, quota, MARKS_WAIT, urgent=True))

        async def there(target: Target) -> bool | None:
            owner = msgspec.json.decode(target.data, type=Owner)
            try:
                return await paced(owner.where).read(_KINDS[target.kind], target.id) is not None
            except AzureError:
                return None

        lister, keeping = Lister(paced), Keeping(azure, urgent)
        try:
            collector = KarpenterCollector(azure, consents, memory, keeping)
            yield AzureSide(collector, handlers, lister, AzureRetainedTags(azure, paced), there)
        finally:
            await nodes.aclose()
