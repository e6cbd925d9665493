"""AWS account of the demo: resources of every cluster, resources of others that resemble them, and what is left. Those
of ACK's objects are in `ack_resources.py`.
Everything is read from the stand-in's own lists and journal, never from Knell."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Final

import msgspec

from standins.aws import AwsBehaviour, AwsFault, AwsJournalEntry, LocalAws
from standins.aws.tags import by_cloud_provider, by_cluster_api
from standins.demo.ack_resources import is_of_ack
from standins.demo.fleet import DemoCluster, Fleet

if TYPE_CHECKING:
    from standins.aws.builder import AwsBuilder, Vpc

ACCOUNT: Final = "111122223333"
REGION: Final = "eu-west-1"
BEHAVIOUR: Final = AwsBehaviour(
    # In AWS interfaces of a deleted load balancer drain for minutes.
    drain=4.0,
    # On top of AWS's own token buckets, as if another program used them up.
    faults=(
        AwsFault(what="throttle", action="elbv2.DeleteLoadBalancer", times=2),
        AwsFault(what="throttle", action="ec2.DeleteSecurityGroup", times=4),
    ),
)

BALANCERS: Final = "load balancers"
TARGET_GROUPS: Final = "target groups"
GROUPS: Final = "security groups"
INTERFACES: Final = "their interfaces"
_READS: Final = ("Describe", "Get", "List")
_TAGGING: Final = ("CreateTags", "AddTags", "TagResources")
_THROTTLES: Final = ("Throttling", "ThrottledException", "ThrottlingException", "RequestLimitExceeded")


class AwsSummary(msgspec.Struct, frozen=True, kw_only=True):
    """`left` had to be deleted and exists; `missing` had to stay and does not exist. `touched` had to stay and was
    named in a call that changes something; `early` was named in one while its cluster was protected; `twice` was
    deleted more than once. `tagged` are retained resources that were marked as such. `drained` are interfaces that
    went after their load balancers."""

    resources: int
    removed: int
    left: list[str]
    kept: int
    missing: list[str]
    touched: list[str]
    early: list[str]
    twice: list[str]
    tagged: int
    drained: int
    calls: int
    throttled: int
    refused: dict[str, int]


class AwsAccount:
    """State as of the last `refresh`."""

    def __init__(self, aws: LocalAws, fleet: Fleet) -> None:
        self._aws, self._fleet = aws, fleet
        self._open = AsyncExitStack()
        self.builder: AwsBuilder
        """Once it was opened."""
        self._existing: frozenset[str] = frozenset()
        self._rules: frozenset[str] = frozenset()
        self._foreign: frozenset[str] = frozenset()
        self._interfaces = 0
        self.owned: dict[str, Mapping[str, frozenset[str]]] = {}
        """Ids by kind of every cluster."""
        self.entries: list[AwsJournalEntry] = []

    async def aclose(self) -> None:
        await self._open.aclose()

    # ---- creation

    async def open(self) -> None:
        """Waits for the stand-in."""
        # Imported here: the SDK takes longer to import than all the rest of the demo.
        from standins.aws.builder import AwsBuilder

        await self._aws.wait_until_ready()
        builder = AwsBuilder(self._aws.address, account=ACCOUNT, region=REGION)
        self.builder = await self._open.enter_async_context(builder)

    async def add_cluster(self, cluster: DemoCluster) -> str:
        """Creates the resources of a cluster; returns its VPC."""
        first = cluster is self._fleet.clusters[0]
        # Rules that refer to each other's groups have to be revoked before the groups can be deleted.
        with _errors():
            made = await self.builder.cluster_resources(cluster.name, entangled=first)
            if first:
                await self._add_foreign(cluster.name, made.vpc)
        self.owned[cluster.name] = {
            BALANCERS: frozenset((*made.classic, *made.balancers)),
            TARGET_GROUPS: frozenset(made.target_groups),
            GROUPS: frozenset(made.groups),
        }
        return made.vpc.id

    async def finish_creation(self) -> None:
        """Reads what exists, once all clusters were added."""
        removed = self._ids_of(GROUPS)
        with _errors():
            self._rules = frozenset(await self._rules_of(removed))
            self._interfaces = await self._count_interfaces(removed)
            await self._read_lists()
        self._foreign = self._existing - self._all_owned

    async def _add_foreign(self, name: str, vpc: "Vpc") -> None:
        """Resources that resemble those of a cluster as closely as possible and are not its own."""
        builder, other = self.builder, f"{name}-2"
        # Another cluster's, in the same VPC.
        tags = by_cloud_provider(other, "default/web")
        group = await builder.group(vpc, by_cloud_provider(other))
        balancer = await builder.balancer(vpc, tags, of="net", groups=[group])
        await builder.target_group(vpc, tags, behind=balancer)
        # Of a cluster of the same name, in another VPC.
        await builder.group(await builder.vpc(), by_cloud_provider(name))
        # Cluster API's own, which it deletes itself.
        node = await builder.group(vpc, by_cluster_api(name, "node"), name=f"{name}-node")
        await builder.classic(vpc, by_cluster_api(name), groups=[node], name=f"{name}-apiserver")
        # A user's, without tags.
        await builder.group(vpc, name=f"k8s-elb-{name}")

    async def _rules_of(self, groups: Iterable[str]) -> list[str]:
        answer = await self.builder.ec2.describe_security_group_rules(Filters=[_filter("group-id", groups)])
        return [one["SecurityGroupRuleId"] for one in answer["SecurityGroupRules"]]

    async def _count_interfaces(self, groups: Iterable[str]) -> int:
        answer = await self.builder.ec2.describe_network_interfaces(Filters=[_filter("group-id", groups)])
        return len(answer["NetworkInterfaces"])

    # ---- state

    async def refresh(self) -> None:
        """Raises LocalAwsFailed where the stand-in does not answer."""
        with _errors():
            await self._read_lists()
        self.entries += await self._aws.journal(len(self.entries))

    async def _read_lists(self) -> None:
        self._existing = frozenset(await self.builder.standing())

    def progress(self) -> dict[str, tuple[int, int]]:
        """How many are gone, of how many that have to go, by kind in the order in which they go."""
        found: dict[str, tuple[int, int]] = {}
        for kind in (BALANCERS, TARGET_GROUPS, GROUPS):
            ids = self._ids_of(kind)
            found[kind] = (len(ids - self._existing), len(ids))
            if kind == BALANCERS:
                found[INTERFACES] = (min(self._drained, self._interfaces), self._interfaces)
        return found

    def existing_of(self, cluster: DemoCluster) -> tuple[int, int]:
        """How many of a cluster's resources exist, of how many it had."""
        ids = self._ids_of_cluster(cluster)
        return len(ids & self._existing), len(ids)

    @property
    def total(self) -> tuple[int, int]:
        return len(self._to_remove - self._existing), len(self._to_remove)

    @property
    def finished(self) -> bool:
        return not self._to_remove & self._existing

    @property
    def calls(self) -> list[AwsJournalEntry]:
        """Requests by others than the demo itself."""
        return [one for one in self.entries if one.what == "request" and not one.setup]

    @property
    def throttled(self) -> int:
        return sum(one.code in _THROTTLES for one in self.calls)

    @property
    def _drained(self) -> int:
        groups = self._ids_of(GROUPS)
        return sum(one.what == "drained" and not groups.isdisjoint(one.ids) for one in self.entries)

    def _ids_of_cluster(self, cluster: DemoCluster) -> frozenset[str]:
        return frozenset().union(*self.owned[cluster.name].values())

    def _ids_of(self, kind: str) -> frozenset[str]:
        """Those that have to go."""
        removed = [one.name for one in self._fleet.clusters if one.outcome == "removed"]
        return frozenset().union(*(self.owned[name][kind] for name in removed))

    @property
    def _to_remove(self) -> frozenset[str]:
        return frozenset().union(*(self._ids_of(kind) for kind in (BALANCERS, TARGET_GROUPS, GROUPS)))

    @property
    def _all_owned(self) -> frozenset[str]:
        return frozenset().union(*map(self._ids_of_cluster, self._fleet.clusters))

    # ---- the end

    def summary(self, unprotected_at: float) -> AwsSummary:
        """`unprotected_at` is when, by the wall clock, the protection of a cluster was removed."""
        to_remove = self._to_remove
        to_keep = (self._all_owned | self._foreign) - to_remove
        retained = self._ids_of_cluster(self._fleet.retained)
        protected = self._ids_of_cluster(self._fleet.protected)
        changes = [one for one in self.calls if not _name(one).startswith(_READS) and not is_of_ack(one)]
        tags = [one for one in changes if _name(one).startswith(_TAGGING)]
        others = [one for one in changes if not _name(one).startswith(_TAGGING)]
        tagged = {one for entry in tags for one in entry.ids}
        touched = {one for entry in others for one in entry.ids} - to_remove - self._rules
        deleted = Counter(one for entry in others if _is_delete(entry) for one in entry.ids)
        return AwsSummary(
            resources=len(to_remove),
            removed=len(to_remove - self._existing),
            left=sorted(to_remove & self._existing),
            kept=len(to_keep & self._existing),
            missing=sorted(to_keep - self._existing),
            touched=sorted(touched | (tagged & (to_keep - retained))),
            early=sorted({one for entry in changes if entry.real < unprotected_at for one in entry.ids} & protected),
            twice=sorted(one for one, times in deleted.items() if times > 1),
            tagged=len(tagged & retained),
            drained=self._drained,
            calls=len(self.calls),
            throttled=self.throttled,
            refused=dict(Counter(one.code for one in self.calls if _is_refused(one))),
        )


def _errors() -> AbstractContextManager[None]:
    """Raises LocalAwsFailed in place of the SDK's errors."""
    from standins.aws.builder import stand_in_errors

    return stand_in_errors()


def _name(entry: AwsJournalEntry) -> str:
    return entry.action.partition(".")[2]


def _is_delete(entry: AwsJournalEntry) -> bool:
    return _name(entry).startswith("Delete") and not entry.code and entry.status < 300


def _is_refused(entry: AwsJournalEntry) -> bool:
    """That a resource does not exist is an answer, not a refusal."""
    return bool(entry.code) and entry.status != 404 and "NotFound" not in entry.code


def _filter(name: str, values: Iterable[str]) -> dict[str, object]:
    return {"Name": name, "Values": sorted(values)}
