"""Checks of AWS: the account of the credentials, and which reads they may make.
Every identity is checked in every region in which a cluster uses it, and the process's own identity in any case. The
reads draw on no budget."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from redis.exceptions import RedisError

from service.cli.cluster_clients import connect_clusters
from service.cli.doctor.account_checks import list_source_objects
from service.cli.doctor.check_result import CheckResult, CheckState
from service.contract.aws import CAPA
from service.engine.calls import ServerUnavailable
from service.engine.installation import Installation
from service.kubernetes import ClusterError, KubernetesClient
from service.policy.aws_accounts import is_own
from service.settings import AwsSettings, Settings
from service.watching.cluster_identity import cluster_of
from workers.handlers.aws.capa.capa_object import UnusableObject, parse_capa_object
from workers.handlers.aws.client.clients import CallerIdentity, SdkClients
from workers.handlers.aws.client.operations import operation_names
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.model import AwsClient, CallScope
from workers.handlers.aws.permissions import policy
from workers.judging.registry_builder import build_source_clusters

TIMEOUT: Final = timedelta(seconds=20)
"""For all reads as one identity in one region, and for listing the clusters of one source."""

MAX_IDENTITIES: Final = 20
"""Pairs of identity and region that are checked; the number of further ones is reported."""

_DEFAULT_REGION: Final = "us-east-1"
"""Region of the STS call for the process's own credentials if neither a cluster nor the environment names one."""

_FEW: Final = {"MaxResults": 5}


class ReadCall(NamedTuple):
    """A read-only call of the SDK."""

    service: str
    operation: str
    arguments: Mapping[str, Any] = _FEW

    @property
    def action(self) -> str:
        """The IAM action."""
        return operation_names(self.service, self.operation).action


READS: Final = (
    ReadCall("ec2", "describe_vpcs"),
    ReadCall("ec2", "describe_instances"),
    ReadCall("ec2", "describe_security_groups"),
    ReadCall("ec2", "describe_security_group_rules"),
    ReadCall("ec2", "describe_network_interfaces"),
    ReadCall("ec2", "describe_volumes"),
    ReadCall("ec2", "describe_snapshots", {**_FEW, "OwnerIds": ["self"]}),
    ReadCall("ec2", "describe_addresses", {}),
    ReadCall("ec2", "describe_nat_gateways"),
    ReadCall("ec2", "describe_vpc_endpoints"),
    ReadCall("elb", "describe_load_balancers", {"PageSize": 1}),
    ReadCall("elbv2", "describe_load_balancers", {"PageSize": 1}),
    ReadCall("elbv2", "describe_target_groups", {"PageSize": 1}),
    # Not found is a successful answer.
    ReadCall("eks", "describe_cluster", {"name": "knell-doctor"}),
    ReadCall("resourcegroupstaggingapi", "get_resources", {"ResourcesPerPage": 1}),
)
_SERVICE_NAMES: Final = {
    "ec2": "EC2", "elb": "classic ELB", "elbv2": "ELB", "eks": "EKS", "resourcegroupstaggingapi": "tagging API",
}  # fmt: skip


async def check_aws(installation: Installation) -> AsyncIterator[CheckResult]:
    settings = installation.settings
    async with connect_clusters(settings) as clusters:
        places = build_source_clusters(settings, clusters, installation)
        way = SdkClients(places, endpoint=settings.aws.endpoint, namespace=settings.aws.identity_namespace)
        try:
            async with way as reach:
                uses, failures = await _identities_in_use(settings, clusters)
                for whose in uses[:MAX_IDENTITIES]:
                    for result in await _check_identity(reach, settings.aws, whose):
                        yield result
                for result in failures:
                    yield result
                if len(uses) > MAX_IDENTITIES:
                    what = f"{len(uses) - MAX_IDENTITIES} more identities and regions are in use and were not asked"
                    yield CheckResult(check="AWS", state="unknown", what=what)
        finally:
            await places.aclose()


# ---- identities


async def _identities_in_use(
    settings: Settings, clusters: Mapping[str, KubernetesClient]
) -> tuple[list[CallScope], list[CheckResult]]:
    """Each identity once per region, the process's own first; and results for sources that could not be listed."""
    found: dict[tuple[str, str], CallScope] = {}
    failures: list[CheckResult] = []
    for source in (name for name, one in settings.sources.items() if one.collector == CAPA):
        try:
            async with asyncio.timeout(TIMEOUT.total_seconds()):
                async for whose in _identities_of_source(settings, source, clusters.get(cluster_of(settings, source))):
                    found.setdefault((whose.identity, whose.region), whose)
        except (ClusterError, TimeoutError) as error:
            said = str(error) or "the list took too long"
            what = f"which identities and regions source {source} uses is not known: {said}"
            mend = "mend what is said of that cluster, then look again"
            failures.append(CheckResult(check="AWS", state="unknown", what=what, mend=mend, node=f"source {source}"))
    if not any(is_own(identity) for identity, _ in found):
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _DEFAULT_REGION
        found["", region] = CallScope(source="", namespace="", region=region)
    return sorted(found.values(), key=lambda one: (not is_own(one.identity), one.identity, one.region)), failures


async def _identities_of_source(
    settings: Settings, source: str, cluster: KubernetesClient | None
) -> AsyncIterator[CallScope]:
    if cluster is None:
        # Reported by the cluster checks.
        return
    declared = settings.sources[source]
    async for item in list_source_objects(cluster, declared):
        try:
            subject = parse_capa_object(declared.resource, item.raw)
        except UnusableObject:
            continue
        if subject.region:
            yield subject.scope(source)


# ---- reads


async def _check_identity(reach: SdkClients, aws: AwsSettings, whose: CallScope) -> list[CheckResult]:
    node = _node(whose)
    found: list[CheckResult] = []
    try:
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            caller = await reach.caller_identity(whose)
            found.append(check_account(caller, aws, whose))
            if found[-1].state != "wrong":
                found += await _check_services(await reach.client(whose), aws, caller, node)
    except NoAccess as error:
        mend = _TO_MEND_OWN if is_own(whose.identity) else "correct spec.identityRef, or the identity that it names"
        found.append(CheckResult(check="AWS identity", state="wrong", what=str(error), mend=mend, node=node))
    except TimeoutError:
        found.append(CheckResult(check="AWS", state="unknown", what="it did not answer in time", node=node))
    except (RedisError, OSError, ServerUnavailable):
        what = "Redis can't be asked whether the cluster of this identity is the right one"
        mend = "mend what is said of Redis, then look again"
        found.append(CheckResult(check="AWS identity", state="unknown", what=what, mend=mend, node=node))
    return found


_TO_MEND_OWN: Final = (
    "give the process credentials: a role for its service account (IRSA or Pod Identity), or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)


def check_account(caller: CallerIdentity, aws: AwsSettings, whose: CallScope) -> CheckResult:
    """aws.account applies to the process's own credentials only."""
    said, node = f"STS says account {caller.account} ({caller.arn})", _node(whose)
    if not is_own(whose.identity):
        return CheckResult(check="AWS identity", state="fine", what=said, node=node)
    if aws.account and aws.account != caller.account:
        return CheckResult(
            check="AWS identity",
            state="wrong",
            what=f"{said}, but aws.account is {aws.account}: everything of the process's own credentials is held",
            mend=f"run with credentials of account {aws.account}, or set aws.account (KNELL_AWS_ACCOUNT) to "
            f"{caller.account} if that is meant",
            node=node,
        )
    same = "as aws.account says" if aws.account else "aws.account is not set"
    return CheckResult(check="AWS identity", state="fine", what=f"{said}, {same}", node=node)


async def _check_services(calls: AwsClient, aws: AwsSettings, caller: CallerIdentity, node: str) -> list[CheckResult]:
    """One result for each service."""
    wanted = list(reads_for(aws))
    answers = await asyncio.gather(*(_try_read(calls, read) for read in wanted))
    outcomes = list(zip(wanted, answers, strict=True))
    services = dict.fromkeys(read.service for read in wanted)
    return [
        judge_service(
            service, [(read, error) for read, error in outcomes if read.service == service], aws, caller, node
        )
        for service in services
    ]


def reads_for(aws: AwsSettings) -> Iterator[ReadCall]:
    """Those that the IAM policy of these settings allows, without the tagging API where it is not used."""
    allowed = set(policy(aws)["Statement"][0]["Action"])
    for read in READS:
        if read.action in allowed and not (read.service == "resourcegroupstaggingapi" and aws.finding == "describe"):
            yield read


async def _try_read(calls: AwsClient, read: ReadCall) -> AwsError | NoAccess | None:
    """The error, or None."""
    try:
        await calls.call(read.service, read.operation, **read.arguments)
    except AwsError as error:
        return None if error.what == "gone" else error
    except NoAccess as error:
        return error
    return None


def judge_service(
    service: str,
    outcomes: Sequence[tuple[ReadCall, AwsError | NoAccess | None]],
    aws: AwsSettings,
    caller: CallerIdentity,
    node: str,
) -> CheckResult:
    check = f"AWS {_SERVICE_NAMES[service]}"
    denied = {read.action: error for read, error in outcomes if isinstance(error, AwsError) and error.what == "denied"}
    if denied:
        code = next(iter(denied.values())).code
        what = f"{caller.arn} may not {', '.join(denied)} ({code})"
        mend = "allow what `knell role --aws-policy` prints"
        state: CheckState = "wrong"
        if service == "resourcegroupstaggingapi" and aws.finding == "auto":
            state, what = "warning", f"{what}: everything is found by describe calls instead, which are more"
            mend = f"{mend}, or set aws.finding to describe"
        return CheckResult(check=check, state=state, what=what, mend=mend, node=node)
    failed = next((error for _, error in outcomes if error is not None), None)
    if failed is None:
        what = f"it answers {', '.join(read.action for read, _ in outcomes)}"
        return CheckResult(check=check, state="fine", what=what, node=node)
    passing = isinstance(failed, AwsError) and failed.what in ("throttled", "unreachable")
    mend = "see whether aws.endpoint is right and the service may be reached from here, also through proxies"
    return CheckResult(check=check, state="unknown" if passing else "wrong", what=str(failed), mend=mend, node=node)


def _node(whose: CallScope) -> str:
    return f"{whose.region} as {whose.identity or 'this process'}"
