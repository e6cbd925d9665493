"""Checks of `knell doctor` for ACK's objects: its controllers and their deletion policies, its maps of roles, whether
the kinds of the sources are in the table, and the access to AWS."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Final

from service.contract.checks import CheckResult
from service.kubernetes import ClusterError
from service.kubernetes.cluster_reader import ClusterReader
from service.policy.deletion_policy import needs_default
from service.settings import Settings
from service.sources.ack import ACK, AckSettings, service_of_resource
from service.sources.ack_controller import read_controller_policy
from service.sources.aws import AwsAccess
from service.sources.declaration import CannotRead
from workers.collectors.ack.identities import AckIdentities
from workers.collectors.ack.permissions import policy
from workers.collectors.ack.types import UnnamedResource, type_of
from workers.handlers.components import Context
from workers.handlers.source_clusters import SourceCluster
from workers.providers.aws.checks import IdentityCheck, check_identity, probes_for
from workers.providers.aws.client.clients import SdkClients
from workers.providers.aws.errors import NoAccess
from workers.providers.aws.model import CallScope

CLUSTER_TIMEOUT: Final = timedelta(seconds=15)
"""For all requests to one cluster."""

_DEFAULT_REGION: Final = "us-east-1"
"""Region of the calls of the process's own credentials if the environment names none."""


async def run_checks(context: Context, clients: SdkClients, identities: AckIdentities) -> AsyncIterator[CheckResult]:
    settings = context.settings
    for place, names in _sources_by_cluster(context).items():
        try:
            async with asyncio.timeout(CLUSTER_TIMEOUT.total_seconds()):
                results = [one async for one in _check_cluster(settings, place, names, identities)]
        except (ClusterError, TimeoutError) as error:
            what = str(error) or "it did not answer in time"
            results = [CheckResult(check="ACK", state="unknown", what=what, node=f"cluster {place.name}")]
        for result in results:
            yield result
    for result in await check_identity(clients, own_identity_check(settings)):
        yield result


def own_identity_check(settings: Settings) -> IdentityCheck:
    """The process's own credentials, and the reads that the policy of these settings allows. Roles of other accounts
    are not assumed for a check."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _DEFAULT_REGION
    actions = policy(_services(settings))["Statement"][0]["Action"]
    return IdentityCheck(
        CallScope(source="", namespace="", region=region),
        own=True,
        account=settings.section(AwsAccess).account or "",
        reads=tuple(probes_for(actions)),
    )


def _services(settings: Settings) -> set[str]:
    return {service_of_resource(one.resource) for one in settings.sources.values() if one.collector == ACK}


def _sources_by_cluster(context: Context) -> dict[SourceCluster, list[str]]:
    """Clusters without a connection are left out: other checks report them."""
    found: dict[SourceCluster, list[str]] = {}
    for name, source in context.settings.sources.items():
        if source.collector == ACK and (place := context.source_clusters.of(name)) is not None:
            found.setdefault(place, []).append(name)
    return found


async def _check_cluster(
    settings: Settings, place: SourceCluster, names: list[str], identities: AckIdentities
) -> AsyncIterator[CheckResult]:
    for name in names:
        yield await _check_kind(settings, place, name)
    reader = ClusterReader(place.client)
    for service in dict.fromkeys(service_of_resource(settings.sources[name].resource) for name in names):
        yield await _check_controller(settings, place, reader, service, names)
    yield await _check_maps(settings, place, identities)


async def _check_kind(settings: Settings, place: SourceCluster, name: str) -> CheckResult:
    resource, node = settings.sources[name].resource, f"source {name}"
    served = await place.served(resource)
    try:
        row = type_of(service_of_resource(resource), served.kind)
    except UnnamedResource as error:
        mend = f"take source {name} out, or add the line"
        return CheckResult(check="ACK kind", state="wrong", what=f"all its deletions are held: {error}", mend=mend,
                           node=node)  # fmt: skip
    return CheckResult(check="ACK kind", state="fine", what=f"{served.kind} is removed as {row.removes}", node=node)


async def _check_controller(
    settings: Settings, place: SourceCluster, reader: ClusterReader, service: str, names: list[str]
) -> CheckResult:
    namespace, node = settings.section(AckSettings).controller_namespace, f"cluster {place.name}"
    mend = f"set policy.services.{service} to delete or retain, or ack.controller_namespace to where the controller is"
    try:
        found = await read_controller_policy(reader, namespace, service)
    except (CannotRead, ClusterError) as error:
        what = f"whether ACK's controller of {service} is there is not known: {error}"
        return CheckResult(check="ACK controller", state="unknown", what=what, mend=mend, node=node)
    if found.word:
        return CheckResult(check="ACK controller", state="fine", what=found.reason, node=node)
    if list(_undecided(settings, service, names)):
        what = f"{found.reason}: deletions without an annotation are held"
        return CheckResult(check="ACK controller", state="wrong", what=what, mend=mend, node=node)
    what = f"{found.reason}; the settings say what is done"
    return CheckResult(check="ACK controller", state="warning", what=what, mend="see whether ACK runs", node=node)


def _undecided(settings: Settings, service: str, names: list[str]) -> Iterator[str]:
    """Sources of the service for which the settings name no policy."""
    for name in names:
        source = settings.sources[name]
        if service_of_resource(source.resource) == service and needs_default(settings.policy, service, source):
            yield name


async def _check_maps(settings: Settings, place: SourceCluster, identities: AckIdentities) -> CheckResult:
    node = f"cluster {place.name}"
    try:
        maps = await identities.maps(place)
    except NoAccess as error:
        mend = f"knell role --cluster {place.name} | kubectl apply -f -, and run as that service account"
        return CheckResult(check="ACK roles", state="wrong", what=str(error), mend=mend, node=node)
    where = settings.section(AckSettings).controller_namespace
    what = (
        f"{len(maps.accounts)} accounts and {len(maps.teams)} teams in the ConfigMaps of {where}, "
        f"{len(maps.selectors)} IAMRoleSelectors"
    )
    return CheckResult(check="ACK roles", state="fine", what=what, node=node)
