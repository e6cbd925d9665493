"""Checks of the protection at admission in the clusters that answered: policy, binding, webhook and its certificate.
An installation that does not use it gets one line that is fine."""

import asyncio
from collections.abc import AsyncIterator, Collection
from datetime import timedelta
from typing import Final

from service.admission.protection_status import protected_clusters, protection_status
from service.cli import output
from service.contract.checks import CheckResult
from service.kubernetes import ClusterError
from service.settings import Settings
from service.watching.cluster_identity import connect_to

TIMEOUT: Final = timedelta(seconds=40)
"""For one cluster: the API server waits up to 30 seconds for a webhook."""


async def check_protection(settings: Settings, clusters: Collection[str]) -> AsyncIterator[CheckResult]:
    """In those of `clusters` that the settings mean."""
    for name in protected_clusters(settings):
        if name not in clusters:
            continue
        results: list[CheckResult] = []
        try:
            async with asyncio.timeout(TIMEOUT.total_seconds()), connect_to(settings, name) as cluster:
                results = (await protection_status(cluster, settings)).results
        except (ClusterError, TimeoutError) as error:
            said = str(error) or f"it was not answered within {output.span(TIMEOUT)}"
            results = [CheckResult(check="protection", state="unknown", what=said, node=f"cluster {name}")]
        for result in results:
            yield result
