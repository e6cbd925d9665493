"""Checks of `knell doctor` on AWS: the account of the credentials, and which reads they are allowed.
Each identity is tried in each region that a cluster uses, and the process's own even where no cluster uses it. The
reads draw on no budget."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from redis.exceptions import RedisError

from service.cli.account_checks import objects_of
from service.cli.checks import Finding, State
from service.cli.reaching import reached_clusters
from service.contract.aws import CAPA
from service.engine.calls import ServerAway
from service.engine.installation import Installation
from service.kubernetes import Cluster, ClusterError
from service.policy.aws_accounts import is_own
from service.settings import AwsSettings, Settings
from service.watching.clusters import cluster_of
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.model import Calls, Whose
from workers.handlers.aws.operations import operation_of
from workers.handlers.aws.owners import Unclear, subject_of
from workers.handlers.aws.permissions import policy
from workers.handlers.aws.reach import AwsReach, Caller
from workers.judging.wiring import places_in

PATIENCE: Final = timedelta(seconds=20)
"""For everything that is asked as one identity in one region, and for the clusters of one source."""

MOST: Final = 20
"""Identities and regions that are asked; of more it is said that they were not."""

_REGION: Final = "us-east-1"
"""Where STS is asked about the process's own credentials if neither a cluster nor the environment names a region."""

_FEW: Final = {"MaxResults": 5}


class Read(NamedTuple):
    """One call that changes nothing, as the SDK names it."""

    service: str
    operation: str
    arguments: Mapping[str, Any] = _FEW

    @property
    def action(self) -> str:
        """As a policy names it."""
        return operation_of(self.service, self.operation).action


READS: Final = (
    Read("ec2", "describe_vpcs"),
    Read("ec2", "describe_instances"),
    Read("ec2", "describe_security_groups"),
    Read("ec2", "describe_security_group_rules"),
    Read("ec2", "describe_network_interfaces"),
    Read("ec2", "describe_volumes"),
    Read("ec2", "describe_snapshots", {**_FEW, "OwnerIds": ["self"]}),
    Read("ec2", "describe_addresses", {}),
    Read("ec2", "describe_nat_gateways"),
    Read("ec2", "describe_vpc_endpoints"),
    Read("elb", "describe_load_balancers", {"PageSize": 1}),
    Read("elbv2", "describe_load_balancers", {"PageSize": 1}),
    Read("elbv2", "describe_target_groups", {"PageSize": 1}),
    # One that is not there is answered as well.
    Read("eks", "describe_cluster", {"name": "knell-doctor"}),
    Read("resourcegroupstaggingapi", "get_resources", {"ResourcesPerPage": 1}),
)
_CALLED: Final = {
    "ec2": "EC2", "elb": "classic ELB", "elbv2": "ELB", "eks": "EKS", "resourcegroupstaggingapi": "tagging API",
}  # fmt: skip


async def examine_aws(installation: Installation) -> AsyncIterator[Finding]:
    """Identity by identity."""
    settings = installation.settings
    async with reached_clusters(settings) as clusters:
        places = places_in(settings, clusters, installation)
        way = AwsReach(places, endpoint=settings.aws.endpoint, namespace=settings.aws.identity_namespace)
        try:
            async with way as reach:
                uses, troubles = await _uses(settings, clusters)
                for whose in uses[:MOST]:
                    for finding in await _within(reach, settings.aws, whose):
                        yield finding
                for finding in troubles:
                    yield finding
                if len(uses) > MOST:
                    what = f"{len(uses) - MOST} more identities and regions are in use and were not asked"
                    yield Finding(check="AWS", state="unknown", what=what)
        finally:
            await places.aclose()


# ---- who is asked


async def _uses(settings: Settings, clusters: Mapping[str, Cluster]) -> tuple[list[Whose], list[Finding]]:
    """Each identity once in each region, the process's own first; and what could not be listed."""
    found: dict[tuple[str, str], Whose] = {}
    troubles: list[Finding] = []
    for source in (name for name, one in settings.sources.items() if one.collector == CAPA):
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                async for whose in _of_source(settings, source, clusters.get(cluster_of(settings, source))):
                    found.setdefault((whose.identity, whose.region), whose)
        except (ClusterError, TimeoutError) as error:
            said = str(error) or "the list took too long"
            what = f"which identities and regions source {source} uses is not known: {said}"
            mend = "mend what is said of that cluster, then look again"
            troubles.append(Finding(check="AWS", state="unknown", what=what, mend=mend, node=f"source {source}"))
    if not any(is_own(identity) for identity, _ in found):
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _REGION
        found["", region] = Whose(source="", namespace="", region=region)
    return sorted(found.values(), key=lambda one: (not is_own(one.identity), one.identity, one.region)), troubles


async def _of_source(settings: Settings, source: str, cluster: Cluster | None) -> AsyncIterator[Whose]:
    if cluster is None:
        # Said of the cluster itself already.
        return
    declared = settings.sources[source]
    async for item in objects_of(cluster, declared):
        try:
            subject = subject_of(declared.resource, item.raw)
        except Unclear:
            continue
        if subject.region:
            yield subject.whose(source)


# ---- what is asked


async def _within(reach: AwsReach, aws: AwsSettings, whose: Whose) -> list[Finding]:
    node = _node(whose)
    found: list[Finding] = []
    try:
        async with asyncio.timeout(PATIENCE.total_seconds()):
            caller = await reach.whoami(whose)
            found.append(check_account(caller, aws, whose))
            if found[-1].state != "wrong":
                found += await _services(await reach.calls(whose), aws, caller, node)
    except NoAccess as error:
        mend = _TO_MEND_OWN if is_own(whose.identity) else "correct spec.identityRef, or the identity that it names"
        found.append(Finding(check="AWS identity", state="wrong", what=str(error), mend=mend, node=node))
    except TimeoutError:
        found.append(Finding(check="AWS", state="unknown", what="it did not answer in time", node=node))
    except (RedisError, OSError, ServerAway):
        what = "Redis can't be asked whether the cluster of this identity is the right one"
        mend = "mend what is said of Redis, then look again"
        found.append(Finding(check="AWS identity", state="unknown", what=what, mend=mend, node=node))
    return found


_TO_MEND_OWN: Final = (
    "give the process credentials: a role for its service account (IRSA or Pod Identity), or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)


def check_account(caller: Caller, aws: AwsSettings, whose: Whose) -> Finding:
    """The setting is about the process's own credentials; an identity's account is its own affair."""
    said, node = f"STS says account {caller.account} ({caller.arn})", _node(whose)
    if not is_own(whose.identity):
        return Finding(check="AWS identity", state="fine", what=said, node=node)
    if aws.account and aws.account != caller.account:
        return Finding(
            check="AWS identity",
            state="wrong",
            what=f"{said}, but aws.account is {aws.account}: everything of the process's own credentials is held",
            mend=f"run with credentials of account {aws.account}, or set aws.account (KNELL_AWS_ACCOUNT) to "
            f"{caller.account} if that is meant",
            node=node,
        )
    same = "as aws.account says" if aws.account else "aws.account is not set"
    return Finding(check="AWS identity", state="fine", what=f"{said}, {same}", node=node)


async def _services(calls: Calls, aws: AwsSettings, caller: Caller, node: str) -> list[Finding]:
    """One finding for each service, whatever is wrong with the others."""
    wanted = list(reads_for(aws))
    answers = await asyncio.gather(*(_asked(calls, read) for read in wanted))
    outcomes = list(zip(wanted, answers, strict=True))
    services = dict.fromkeys(read.service for read in wanted)
    return [
        judged(service, [(read, error) for read, error in outcomes if read.service == service], aws, caller, node)
        for service in services
    ]


def reads_for(aws: AwsSettings) -> Iterator[Read]:
    """Those that the policy for these settings has, without the tagging API where it is not used."""
    allowed = set(policy(aws)["Statement"][0]["Action"])
    for read in READS:
        if read.action in allowed and not (read.service == "resourcegroupstaggingapi" and aws.finding == "describe"):
            yield read


async def _asked(calls: Calls, read: Read) -> AwsError | NoAccess | None:
    """What stands against it; None where it is answered."""
    try:
        await calls.call(read.service, read.operation, **read.arguments)
    except AwsError as error:
        return None if error.what == "gone" else error
    except NoAccess as error:
        return error
    return None


def judged(
    service: str, outcomes: Sequence[tuple[Read, AwsError | NoAccess | None]], aws: AwsSettings, caller: Caller,
    node: str,
) -> Finding:  # fmt: skip
    check = f"AWS {_CALLED[service]}"
    denied = {read.action: error for read, error in outcomes if isinstance(error, AwsError) and error.what == "denied"}
    if denied:
        code = next(iter(denied.values())).code
        what = f"{caller.arn} may not {', '.join(denied)} ({code})"
        mend = "allow what `knell role --aws-policy` prints"
        state: State = "wrong"
        if service == "resourcegroupstaggingapi" and aws.finding == "auto":
            state, what = "warning", f"{what}: everything is found by describe calls instead, which are more"
            mend = f"{mend}, or set aws.finding to describe"
        return Finding(check=check, state=state, what=what, mend=mend, node=node)
    failed = next((error for _, error in outcomes if error is not None), None)
    if failed is None:
        what = f"it answers {', '.join(read.action for read, _ in outcomes)}"
        return Finding(check=check, state="fine", what=what, node=node)
    passing = isinstance(failed, AwsError) and failed.what in ("throttled", "unreachable")
    mend = "see whether aws.endpoint is right and the service may be reached from here, also through proxies"
    return Finding(check=check, state="unknown" if passing else "wrong", what=str(failed), mend=mend, node=node)


def _node(whose: Whose) -> str:
    return f"{whose.region} as {whose.identity or 'this process'}"
