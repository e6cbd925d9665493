"""What a builder of worlds makes with ELB: balancers of all types, target groups and listeners.
Classic balancers are known by name, everything else by ARN."""

from collections.abc import Sequence
from typing import Any, Literal

from standins.aws.networks import Vpc
from standins.aws.tags import Tags, named, pairs


class Traffic:
    """Mixed into `world.World`, which has the clients."""

    elb: Any
    elbv2: Any

    async def classic(self, vpc: Vpc, tags: Tags | None = None, *, groups: Sequence[str] = (), name: str = "") -> str:
        name = name or named("classic")
        listener = {"Protocol": "TCP", "LoadBalancerPort": 80, "InstanceProtocol": "TCP", "InstancePort": 30080}
        given = {"Tags": pairs(tags)} if tags else {}
        await self.elb.create_load_balancer(
            LoadBalancerName=name,
            Listeners=[listener],
            Subnets=list(vpc.subnets),
            SecurityGroups=list(groups),
            **given,
        )
        return name

    async def balancer(
        self,
        vpc: Vpc,
        tags: Tags | None = None,
        *,
        of: Literal["app", "net", "gwy"] = "app",
        groups: Sequence[str] = (),
        name: str = "",
    ) -> str:
        given = {"Tags": pairs(tags)} if tags else {}
        made = await self.elbv2.create_load_balancer(
            Name=name or named(of),
            Type={"app": "application", "net": "network", "gwy": "gateway"}[of],
            Subnets=list(vpc.subnets),
            SecurityGroups=list(groups),
            **given,
        )
        return str(made["LoadBalancers"][0]["LoadBalancerArn"])

    async def protect(self, balancer: str, *, protected: bool = True) -> None:
        attribute = {"Key": "deletion_protection.enabled", "Value": "true" if protected else "false"}
        await self.elbv2.modify_load_balancer_attributes(LoadBalancerArn=balancer, Attributes=[attribute])

    async def target_group(
        self, vpc: Vpc, tags: Tags | None = None, *, behind: str = "", port: int = 80, name: str = ""
    ) -> str:
        """With `behind`, a listener of that balancer on that port forwards to it."""
        protocol = _protocol(behind)
        given = {"Tags": pairs(tags)} if tags else {}
        made = await self.elbv2.create_target_group(
            Name=name or named("tg"),
            Protocol=protocol,
            Port=6081 if protocol == "GENEVE" else port,
            VpcId=vpc.id,
            **given,
        )
        arn = str(made["TargetGroups"][0]["TargetGroupArn"])
        if behind:
            await self.listener(behind, arn, port=port)
        return arn

    async def listener(self, balancer: str, target_group: str, *, port: int = 80) -> str:
        protocol = _protocol(balancer)
        # A gateway balancer takes whatever comes.
        given = {} if protocol == "GENEVE" else {"Protocol": protocol, "Port": port}
        forward = {"Type": "forward", "TargetGroupArn": target_group}
        made = await self.elbv2.create_listener(LoadBalancerArn=balancer, DefaultActions=[forward], **given)
        return str(made["Listeners"][0]["ListenerArn"])


def _protocol(balancer: str) -> str:
    """What a balancer of that ARN speaks; without one, what an application balancer does."""
    return "TCP" if "/net/" in balancer else "GENEVE" if "/gwy/" in balancer else "HTTP"
