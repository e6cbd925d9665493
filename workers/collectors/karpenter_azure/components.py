"""Opens the collector of Karpenter's NodeClaims on Azure: registers its judge with the Azure provider, and brings the
finder of orphans and the checks of `knell doctor`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from service.sources.karpenter_azure import KARPENTER_AZURE, AzureSettings
from workers.collectors.karpenter_azure.checks import check_groups
from workers.collectors.karpenter_azure.collector import KarpenterCollector
from workers.collectors.karpenter_azure.judge import KarpenterJudge
from workers.collectors.karpenter_azure.kept_tagging import AzureKeptTagging
from workers.collectors.karpenter_azure.listing import AzureLister
from workers.collectors.karpenter_azure.node_protection import NodeProtection
from workers.collectors.karpenter_azure.orphans import KarpenterOrphans
from workers.handlers.components import Components, Context
from workers.providers.azure.components import azure_provider


@asynccontextmanager
async def components(context: Context) -> AsyncIterator[Components]:
    azure = context.settings.section(AzureSettings)
    provider = await context.provider(azure_provider)
    nodes, lister = NodeProtection(context.source_clusters, azure.not_ready), AzureLister(provider.calls)
    provider.register(KARPENTER_AZURE, KarpenterJudge(azure, nodes, context.kept_records))
    tagging = AzureKeptTagging(azure, provider.urgent_calls)
    try:
        yield Components(
            collector=KarpenterCollector(azure, provider.consents, context.kept_records, tagging),
            exists=provider.exists, orphans=KarpenterOrphans(azure, lister),
            checks=partial(check_groups, azure, lister),
        )  # fmt: skip
    finally:
        await nodes.aclose()
