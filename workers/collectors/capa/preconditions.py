"""Preconditions of collecting a cluster: not moving, not paused, nothing running, the right account and VPC. A failed
one holds the deletion and says what is waited for; a check that could not be made counts as failed."""

import re
import time
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Final, NamedTuple

from service.kubernetes import NotServed, ServedResource
from service.policy.capi import CLUSTER_NAME, CLUSTERS, MACHINE_POOLS, MACHINES, pause_or_move, pause_reason
from service.sources.capa import capi_ownership_tag, ownership_tag
from workers.collectors.capa.accounts import how_to_record_account, is_account_recorded
from workers.collectors.capa.capa_object import OPT_OUT_HINT, CapaObject
from workers.collectors.capa.running_instances import NOT_TERMINATED, RunningInstances
from workers.handlers.source_clusters import SourceCluster
from workers.providers.aws.client.reads_by_id import ReadsById
from workers.providers.aws.errors import AwsError
from workers.providers.aws.model import AwsClient

RETRY_SOON: Final = timedelta(seconds=10)
"""When a failed precondition is checked again."""

RETRY_LATER: Final = timedelta(minutes=1)
"""The same for one that only an operator can change."""

MAX_NAMED: Final = 3
"""Names listed in a message; the rest are counted."""

MAX_FILTER_VALUES: Final = 200
"""Values per EC2 request, in all filters together."""


_EKS_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")
"""Valid names of EKS clusters; EKS rejects requests for any other."""


class PreconditionFailed(Exception):
    """A precondition that does not hold; the message says what is waited for, `after` when to check again. With `waits`
    it will pass without an operator."""

    def __init__(self, reason: str, after: timedelta | None = RETRY_SOON, *, waits: bool = False) -> None:
        super().__init__(reason)
        self.after, self.waits = after, waits


class ReadScope(NamedTuple):
    """Key for shared reads: one identity of one management cluster, in one account and region."""

    source: str
    identity: str
    account: str
    region: str


def read_scope(client: AwsClient) -> ReadScope:
    scope = client.scope
    return ReadScope(scope.source, scope.identity, client.account, scope.region)


# ---- also checked right before every destructive call


async def require_not_moving(subject: CapaObject, place: SourceCluster) -> None:
    """`clusterctl move` deletes objects whose cluster lives on elsewhere, and pauses them first."""
    if (still := pause_or_move(subject.annotations)) is not None:
        raise PreconditionFailed(f"{still.kind}: {still.reason}", RETRY_LATER)
    cluster = await place.get(CLUSTERS, subject.namespace, subject.cluster)
    if cluster is None:
        raise PreconditionFailed(
            f"Cluster {subject.namespace}/{subject.cluster}, which owns it, is not there, so it is unknown whether "
            f"it was moved; {OPT_OUT_HINT}",
            RETRY_LATER,
        )
    if subject.cluster_uid and cluster.uid != subject.cluster_uid:
        raise PreconditionFailed(
            f"Cluster {subject.namespace}/{subject.cluster} has uid {cluster.uid}, and the one that owns it "
            f"{subject.cluster_uid}: it is unknown whether that was moved; {OPT_OUT_HINT}",
            RETRY_LATER,
        )
    if (why := pause_reason(cluster.raw)) is not None:
        raise PreconditionFailed(
            f"paused: Cluster {subject.namespace}/{subject.cluster}, which owns it, by {why}", RETRY_LATER
        )


# ---- before a plan


async def require_no_machines(subject: CapaObject, place: SourceCluster) -> None:
    """By the management cluster; for EKS it does not tell when controllers stop."""
    if subject.managed:
        return
    left = [
        *await _objects(place, MACHINES, "Machine", subject),
        *await _objects(place, MACHINE_POOLS, "MachinePool", subject),
    ]
    if left:
        raise PreconditionFailed(
            f"too early: {join_names(left)} of cluster {subject.name} must be gone first", waits=True
        )


class AwsPreconditions:
    """Preconditions that AWS answers. Reads for several clusters are coalesced."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._vpcs = ReadsById[ReadScope, str](_read_vpcs, max_ids=MAX_FILTER_VALUES)
        self._instances = RunningInstances[ReadScope](MAX_FILTER_VALUES - len(NOT_TERMINATED), clock)
        # EKS describes one cluster per call; concurrent callers share it.
        self._eks = ReadsById[tuple[ReadScope, str], str](_read_eks)

    async def require_vpc(self, subject: CapaObject, client: AwsClient, expected: str) -> None:
        """`expected` is the account in the settings."""
        if not subject.vpc or subject.vpc in await self._vpcs.read(read_scope(client), client, [subject.vpc]):
            return
        missing = f"VPC {subject.vpc} of {subject.label} is not in account {client.account}, region {subject.region}"
        if not subject.vpc_deleted:
            raise PreconditionFailed(
                f"{missing}: the wrong account is not an empty account; correct the credentials, or, where the VPC is "
                f"gone for good, {OPT_OUT_HINT}",
                RETRY_LATER,
            )
        if not is_account_recorded(subject, expected):
            raise PreconditionFailed(
                f"{missing}: Cluster API says that it has deleted it, but nothing else tells whether that account is "
                f"the right one; {how_to_record_account(subject, client.account)}; {OPT_OUT_HINT}",
                RETRY_LATER,
            )
        # Cluster API has recorded that it deleted the VPC, and the account is confirmed.

    async def require_nothing_running(
        self, subject: CapaObject, client: AwsClient, *, all_in_vpc: bool, within: timedelta = timedelta(0)
    ) -> None:
        """While anything of the cluster runs, deleted resources may be created again. With `all_in_vpc`, instances in
        another VPC belong to another cluster of the same name. Instances listed `within` that time are not listed
        again."""
        if await self._eks_is_going(subject, client) and all_in_vpc:
            return
        tags = dict.fromkeys(
            (ownership_tag(subject.name), capi_ownership_tag(subject.name), capi_ownership_tag(subject.cluster))
        )
        found = await self._instances.with_tags(read_scope(client), client, tags, within)
        if running := {one for one in found if not (all_in_vpc and one.is_in_other_vpc(subject.vpc))}:
            words = join_names(sorted(f"instance {one.id}{f' in {one.vpc}' if one.vpc else ''}" for one in running))
            raise PreconditionFailed(f"too early: {words} of cluster {subject.name} must be gone first", waits=True)

    async def aclose(self) -> None:
        for reads in (self._vpcs, self._instances, self._eks):
            await reads.aclose()

    async def _eks_is_going(self, subject: CapaObject, client: AwsClient) -> bool:
        """False if EKS has no such cluster. That alone proves nothing: the cluster may run on instances. An EKS cluster
        beside an unmanaged object is another cluster, and may own what is tagged until it is gone."""
        if not _EKS_NAME.fullmatch(subject.name):
            return False
        found = await self._eks.read((read_scope(client), subject.name), client, [subject.name])
        state = found.get(subject.name)
        if state is not None and not subject.managed:
            raise PreconditionFailed(
                f"EKS cluster {subject.name} is {state} in the same account and region, and has the same name in its "
                f"tags: what is tagged may be its until it is gone; {OPT_OUT_HINT}",
                RETRY_SOON if state == "DELETING" else RETRY_LATER,
                waits=state == "DELETING",
            )
        if state not in (None, "DELETING"):
            words = f"too early: EKS cluster {subject.name} is {state}; it must be deleting or gone first"
            raise PreconditionFailed(words, waits=True)
        return state is not None


async def _objects(place: SourceCluster, resource: str, kind: str, subject: CapaObject) -> list[str]:
    try:
        return await place.on(resource, lambda served: _named(place, served, kind, subject))
    except NotServed:
        if resource == MACHINES:
            raise
        # Cluster API may be installed without MachinePools.
        await require_not_installed(place, resource)
        return []


async def require_not_installed(place: SourceCluster, resource: str) -> None:
    """Raises PreconditionFailed unless the CRD is absent: a resource that is not served for a moment, as while its CRD
    is replaced, may still have objects."""
    if (state := await place.crd_state(resource)) != "absent":
        raise PreconditionFailed(f"{resource} of cluster {place.name} can't be listed now, although its CRD is {state}")


async def _named(place: SourceCluster, served: ServedResource, kind: str, subject: CapaObject) -> list[str]:
    found: list[str] = []
    selector = f"{CLUSTER_NAME}={subject.cluster}"
    async for page in place.client.pages(served, subject.namespace, selector, metadata_only=True):
        found += [f"{kind} {one.namespace}/{one.name}" for one in page.items]
        found += [f"{kind} that can't be read ({why})" for why in page.unreadable]
    return found


async def has_vpc(client: AwsClient, vpc: str) -> bool:
    """Whether the account and region have it, by a separate read."""
    return vpc in await _read_vpcs(read_scope(client), client, [vpc])


async def _read_vpcs(_key: ReadScope, client: AwsClient, ids: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    filters = [{"Name": "vpc-id", "Values": list(ids)}]
    async for page in client.pages("ec2", "describe_vpcs", "Vpcs", Filters=filters):
        found |= {str(one["VpcId"]): str(one.get("State", "")) for one in page}
    return found


async def _read_eks(_key: tuple[ReadScope, str], client: AwsClient, names: Collection[str]) -> dict[str, str]:
    """States of the existing clusters, by name."""
    found: dict[str, str] = {}
    for name in names:
        try:
            answer = await client.call("eks", "describe_cluster", name=name)
        except AwsError as error:
            if error.what != "gone":
                raise
        else:
            found[name] = str(answer.get("cluster", {}).get("status") or "in no known state")
    return found


def join_names(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"
