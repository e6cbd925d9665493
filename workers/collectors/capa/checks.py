"""Checks of `knell doctor` for clusters on AWS: CAPA in each management cluster, and the access to AWS. Every identity
is checked in every region in which a cluster uses it, and the process's own identity in any case."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from service.contract.checks import CheckResult
from service.kubernetes import ClusterError
from service.settings import Settings
from service.sources.capa import CAPA, AwsSettings
from workers.collectors.capa.account_records import is_own
from workers.collectors.capa.capa_object import UnusableObject, parse_capa_object
from workers.collectors.capa.checks_accounts import list_source_objects
from workers.collectors.capa.checks_own_gc import check_capa
from workers.collectors.capa.permissions import policy
from workers.collectors.capa.tagging_api import TAGGING
from workers.handlers.components import Context
from workers.handlers.source_clusters import SourceCluster
from workers.providers.aws.checks import IdentityCheck, check_identity, probes_for
from workers.providers.aws.client.clients import SdkClients
from workers.providers.aws.model import CallScope

CLUSTER_TIMEOUT: Final = timedelta(seconds=10)
"""For all requests to one management cluster about CAPA."""

LIST_TIMEOUT: Final = timedelta(seconds=20)
"""For listing the clusters of one source."""

MAX_IDENTITIES: Final = 20
"""Pairs of identity and region that are checked; the number of further ones is reported."""

_DEFAULT_REGION: Final = "us-east-1"
"""Region of the STS call for the process's own credentials if neither a cluster nor the environment names one."""

_DESCRIBED_INSTEAD: Final = (
    "everything is found by describe calls instead, which are more",
    "set aws.finding to describe",
)


async def run_checks(context: Context, clients: SdkClients) -> AsyncIterator[CheckResult]:
    settings, sources = context.settings, _sources_by_cluster(context)
    for place, names in sources.items():
        try:
            async with asyncio.timeout(CLUSTER_TIMEOUT.total_seconds()):
                results = await check_capa(place.client, settings, place.name, names)
        except (ClusterError, TimeoutError) as error:
            what = str(error) or "it did not answer in time"
            results = [CheckResult(check="CAPA", state="unknown", what=what, node=f"cluster {place.name}")]
        for result in results:
            yield result
    aws = settings.section(AwsSettings)
    uses, failures = await _identities_in_use(settings, sources)
    for scope in uses[:MAX_IDENTITIES]:
        for result in await check_identity(clients, identity_check(aws, scope)):
            yield result
    for result in failures:
        yield result
    if len(uses) > MAX_IDENTITIES:
        what = f"{len(uses) - MAX_IDENTITIES} more identities and regions are in use and were not asked"
        yield CheckResult(check="AWS", state="unknown", what=what)


def identity_check(aws: AwsSettings, scope: CallScope) -> IdentityCheck:
    """Reads that the IAM policy of these settings allows, without the tagging API where it is not used."""
    actions = policy(aws)["Statement"][0]["Action"]
    return IdentityCheck(
        scope,
        own=is_own(scope.identity),
        account=aws.account or "",
        reads=tuple(probes_for(actions, without=(TAGGING,) if aws.finding == "describe" else ())),
        optional={TAGGING: _DESCRIBED_INSTEAD} if aws.finding == "auto" else {},
    )


def _sources_by_cluster(context: Context) -> dict[SourceCluster, list[str]]:
    """Clusters without a connection are left out: other checks report them."""
    found: dict[SourceCluster, list[str]] = {}
    for name, source in context.settings.sources.items():
        if source.collector == CAPA and (place := context.source_clusters.of(name)) is not None:
            found.setdefault(place, []).append(name)
    return found


async def _identities_in_use(
    settings: Settings, sources: dict[SourceCluster, list[str]]
) -> tuple[list[CallScope], list[CheckResult]]:
    """Each identity once per region, the process's own first; and results for sources that could not be listed."""
    found: dict[tuple[str, str], CallScope] = {}
    failures: list[CheckResult] = []
    for place, source in ((place, name) for place, names in sources.items() for name in names):
        try:
            async with asyncio.timeout(LIST_TIMEOUT.total_seconds()):
                async for scope in _identities_of_source(settings, source, place):
                    found.setdefault((scope.identity, scope.region), scope)
        except (ClusterError, TimeoutError) as error:
            said = str(error) or "the list took too long"
            what = f"which identities and regions source {source} uses is not known: {said}"
            mend = "mend what is said of that cluster, then look again"
            failures.append(CheckResult(check="AWS", state="unknown", what=what, mend=mend, node=f"source {source}"))
    if not any(is_own(identity) for identity, _ in found):
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _DEFAULT_REGION
        found["", region] = CallScope(source="", namespace="", region=region)
    return sorted(found.values(), key=lambda one: (not is_own(one.identity), one.identity, one.region)), failures


async def _identities_of_source(settings: Settings, source: str, place: SourceCluster) -> AsyncIterator[CallScope]:
    declared = settings.sources[source]
    async for item in list_source_objects(place.client, declared):
        try:
            subject = parse_capa_object(declared.resource, item.raw)
        except UnusableObject:
            continue
        if subject.region:
            yield subject.scope(source)
