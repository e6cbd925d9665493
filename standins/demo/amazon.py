"""The demo's account at the stand-in for AWS: what the controllers of a cluster made, and what only looks like it.
What is left of it, and who was asked for what, is read from the stand-in itself."""

from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from standins.aws import Behaviour, Entry, LocalAws
from standins.aws.tags import by_cloud_provider, by_cluster_api

if TYPE_CHECKING:
    from standins.aws.networks import Vpc
    from standins.aws.world import World

ACCOUNT: Final = "111122223333"
REGION: Final = "eu-west-1"
BEHAVIOUR: Final = Behaviour(drain=4.0)
"""Interfaces drain for minutes in the real world."""

BALANCERS: Final = "load balancers"
INTERFACES: Final = "their interfaces"
GROUPS: Final = "security groups"
_READS: Final = ("Describe", "Get", "List")


class Account:
    """`left` are the ids of what is the cluster's and still there, by kind, in the order in which they go. Interfaces
    go by themselves, some time after their balancers, and are only counted."""

    def __init__(self, aws: LocalAws, name: str) -> None:
        self._aws, self._name = aws, name
        self._open = AsyncExitStack()
        self._world: World
        self._rules: frozenset[str] = frozenset()
        self._strangers: frozenset[str] = frozenset()
        self._standing: frozenset[str] = frozenset()
        self.ours: Mapping[str, frozenset[str]] = {}
        self.interfaces = 0
        self.draining = 0
        self.entries: list[Entry] = []

    async def aclose(self) -> None:
        await self._open.aclose()

    # ---- making

    async def build(self) -> str:
        """Waits for the stand-in; answers the id of the cluster's VPC."""
        # Only here: the SDK takes longer to import than all the rest of the demo.
        from standins.aws.world import World, asking

        await self._aws.wait_until_ready()
        world = World(self._aws.address, account=ACCOUNT, region=REGION)
        self._world = await self._open.enter_async_context(world)
        with asking():
            return await self._build()

    async def _build(self) -> str:
        made = await self._world.cluster_resources(self._name, entangled=True)
        await self._add_strangers(made.vpc)
        self.ours = {
            BALANCERS: frozenset((*made.classic, *made.balancers)),
            "target groups": frozenset(made.target_groups),
            GROUPS: frozenset(made.groups),
        }
        answer = await self._world.ec2.describe_security_group_rules(Filters=[_about("group-id", made.groups)])
        self._rules = frozenset(one["SecurityGroupRuleId"] for one in answer["SecurityGroupRules"])
        self._strangers = frozenset(await self._world.standing()) - self._every
        await self._look()
        self.interfaces = self.draining
        return made.vpc.id

    async def _add_strangers(self, vpc: "Vpc") -> None:
        """As much like the cluster's own as can be."""
        world, name, other = self._world, self._name, f"{self._name}-2"
        # Another cluster's, in the same VPC.
        served = by_cloud_provider(other, "default/web")
        group = await world.group(vpc, by_cloud_provider(other))
        balancer = await world.balancer(vpc, served, of="net", groups=[group])
        await world.target_group(vpc, served, behind=balancer)
        # Of a cluster of the same name.
        await world.group(await world.vpc(), by_cloud_provider(name))
        # Cluster API's own, which it removes itself.
        node = await world.group(vpc, by_cluster_api(name, "node"), name=f"{name}-node")
        await world.classic(vpc, by_cluster_api(name), groups=[node], name=f"{name}-apiserver")
        # A user's.
        await world.group(vpc, name=f"k8s-elb-{name}")

    # ---- looking

    async def look(self) -> None:
        """Raises LocalAwsFailed where the stand-in does not answer."""
        from standins.aws.world import asking

        with asking():
            await self._look()

    async def _look(self) -> None:
        self._standing = frozenset(await self._world.standing())
        self.entries += await self._aws.journal(len(self.entries))
        self.draining = 0
        if groups := self.left[GROUPS]:
            answer = await self._world.ec2.describe_network_interfaces(Filters=[_about("group-id", groups)])
            self.draining = len(answer["NetworkInterfaces"])

    @property
    def left(self) -> dict[str, frozenset[str]]:
        return {kind: ids & self._standing for kind, ids in self.ours.items()}

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """How many are left, of how many."""
        found: dict[str, tuple[int, int]] = {}
        for kind, left in self.left.items():
            found[kind] = (len(left), len(self.ours[kind]))
            if kind == BALANCERS:
                found[INTERFACES] = (self.draining, self.interfaces)
        return found

    @property
    def strangers(self) -> tuple[frozenset[str], frozenset[str]]:
        """Who was there, and who of them is there."""
        return self._strangers, self._strangers & self._standing

    # ---- what was asked, by others than who built it

    @property
    def asked(self) -> list[Entry]:
        return [one for one in self.entries if one.what == "request" and not one.setup]

    @property
    def refused(self) -> Counter[str]:
        """By the code; that something which was looked for is not there is an answer."""
        return Counter(one.code for one in self.asked if one.code and not one.code.endswith("NotFound"))

    @property
    def touched(self) -> set[str]:
        """What is not the cluster's and was named in a call that is to change something."""
        changing = (one for one in self.asked if not one.action.partition(".")[2].startswith(_READS))
        return {one for entry in changing for one in entry.ids} - self._every - self._rules

    @property
    def _every(self) -> frozenset[str]:
        return frozenset().union(*self.ours.values())


def _about(name: str, values: "frozenset[str] | tuple[str, ...]") -> dict[str, object]:
    return {"Name": name, "Values": sorted(values)}
