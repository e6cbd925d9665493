"""Builder of the Azure components of a worker: clients, collector, a handler for every kind, and the lister for sweeps.
It is imported only by processes with Azure sources, because the SDK is large."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from service.contract import Target
from service.settings import Settings
from workers.handlers.azure.call_meters import BudgetCallMeter
from workers.handlers.azure.calls import AzureCalls
from workers.handlers.azure.clients import AzureClients
from workers.handlers.azure.collector import KarpenterCollector
from workers.handlers.azure.consented_claims import ConsentedClaims
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.kept_tagging import AzureKeptTagging
from workers.handlers.azure.kinds import KINDS
from workers.handlers.azure.listing import AzureLister
from workers.handlers.azure.model import AzureOwner, AzureQuota, AzureScope, CallMeter
from workers.handlers.azure.node_protection import NodeProtection
from workers.handlers.azure.removal import AzureRemoval
from workers.handlers.azure.retained_tags import AzureRetainedTags
from workers.handlers.kept_resources import KeptRecords
from workers.handlers.protocol import Handler
from workers.handlers.source_clusters import SourceClusters

_KINDS: Final = {kind.name: kind for kind in KINDS}

MARKS_WAIT: Final = timedelta(seconds=5)
"""How long a call that tags kept resources waits for tokens; the release retries after longer waits."""


There = Callable[[Target], Awaitable[bool | None]]
"""Whether a target exists, by one read; None if Azure can't tell. For `knell plan`, no proof of absence."""


class AzureComponents(NamedTuple):
    collector: KarpenterCollector
    handlers: tuple[Handler, ...]
    lister: AzureLister
    retained_tags: AzureRetainedTags
    there: There


@asynccontextmanager
async def azure_components(
    settings: Settings,
    source_clusters: SourceClusters,
    quota: AzureQuota | None,
    kept_records: KeptRecords | None = None,
) -> AsyncIterator[AzureComponents]:
    """`quota` is for calls outside of lanes; without one they are not limited. `kept_records` has the abandoned jobs
    and the decisions to keep resources."""
    azure = settings.azure
    async with AzureClients(azure.endpoint) as clients:
        nodes = NodeProtection(source_clusters, azure.not_ready)

        def calling(where: AzureScope, meter: CallMeter) -> AzureCalls:
            return AzureCalls(clients, where, meter, azure.reserve)

        consents = ConsentedClaims()
        handlers = tuple(AzureRemoval(kind, calling, nodes, azure, consents, kept_records) for kind in KINDS)

        def paced(where: AzureScope) -> AzureCalls:
            return calling(where, BudgetCallMeter(where, quota))

        def urgent(where: AzureScope) -> AzureCalls:
            return calling(where, BudgetCallMeter(where, quota, MARKS_WAIT, urgent=True))

        async def there(target: Target) -> bool | None:
            owner = msgspec.json.decode(target.data, type=AzureOwner)
            try:
                return await paced(owner.where).read(_KINDS[target.kind], target.id) is not None
            except AzureError:
                return None

        lister, kept_tagging = AzureLister(paced), AzureKeptTagging(azure, urgent)
        try:
            collector = KarpenterCollector(azure, consents, kept_records, kept_tagging)
            yield AzureComponents(collector, handlers, lister, AzureRetainedTags(azure, paced), there)
        finally:
            await nodes.aclose()
