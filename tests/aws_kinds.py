"""Registry of the AWS kinds for tests: one row per kind, by its name, that says how such a resource is created in the
stand-in, how it is seen there and deleted, and what AWS documents about it. Tests that go over kinds go over this one;
`tests/unit/test_kind_registries.py` compares it with the kinds of the provider."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from standins.aws.builder import ACCOUNT, REGION, AwsBuilder, Vpc
from standins.aws.tags import Tags, by_cloud_provider
from tests.aws import described

SERVICE: Final = "default/web"


class NewAwsResource(NamedTuple):
    """What a resource is created with; a kind ignores what it has no use for. A NAT gateway without `address` gets a
    new one, which has no tags."""

    vpc: Vpc
    tags: Tags | None
    groups: Sequence[str] = ()
    address: str = ""


class ArnExample(NamedTuple):
    """The part of an ARN after the account, and the id by which the resource is read; empty if that is the ARN."""

    resource: str
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsKindRow:
    """`describe` and `delete` are operations of the SDK's client for `service`, which `AwsBuilder` opens, too. The
    response to `describe` has the resources under `items`, each with its id under `id_field`. `describes` and `deletes`
    are the arguments for one id. `not_found` are AWS's codes for a missing one, the delete call's first.
    `delete_bucket` has the capacity of the delete call's own bucket and its refill per second; None where calls share
    one."""

    name: str
    service: str
    create: Callable[[AwsBuilder, NewAwsResource], Awaitable[str]]
    describe: str
    items: str
    id_field: str
    describes: Callable[[str], dict[str, Any]]
    delete: str
    deletes: Callable[[str], dict[str, Any]]
    arns: tuple[ArnExample, ...]
    not_found: tuple[str, ...]
    delete_bucket: tuple[int, float] | None = None
    # A delete call for a missing one succeeds.
    deletes_missing: bool = False
    # Its controllers tag it with the Service that it is for.
    has_service_tag: bool = False
    in_vpc: bool = True
    # Every region's tagging API reports it.
    in_tagging_api: bool = True
    # Its describe call has pages.
    paged: bool = True
    # The setting of the stand-in for the seconds that its deletion takes; empty if it is gone at once.
    takes: str = ""
    # Items that the describe call shows although there is no such resource any more, or that nobody created.
    ignored: Callable[[Mapping[str, Any]], bool] = lambda _: False

    def tags(self, cluster: str) -> Tags:
        """Those of such a resource of a cluster."""
        return by_cloud_provider(cluster, SERVICE if self.has_service_tag else "")

    async def make(
        self, builder: AwsBuilder, vpc: Vpc, tags: Tags | None, *, groups: Sequence[str] = (), address: str = ""
    ) -> str:
        """Creates one, and returns the id that it is read by."""
        return await self.create(builder, NewAwsResource(vpc, tags, groups, address))

    async def there(self, builder: AwsBuilder) -> dict[str, Any]:
        """All that exist in the account and region, as described, by id."""
        found = await described(getattr(builder, self.service), self.describe, self.items)
        return {one[self.id_field]: one for one in found if not self.ignored(one)}

    async def shown(self, client: Any, id_: str) -> list[Any]:
        """What the describe call shows under an id, also of one that is gone."""
        return list((await getattr(client, self.describe)(**self.describes(id_)))[self.items])

    async def remove(self, client: Any, id_: str) -> str:
        """Calls delete once. Returns the code of a failure that a successful response reports, else nothing."""
        answer = await getattr(client, self.delete)(**self.deletes(id_))
        return next((str(one["Error"]["Code"]) for one in answer.get("Unsuccessful") or ()), "")

    @property
    def delete_action(self) -> str:
        """As in DeleteSecurityGroup."""
        return "".join(word.capitalize() for word in self.delete.split("_"))

    @property
    def delete_operation(self) -> str:
        """As lanes and the stand-in's journal name it: ec2.DeleteSecurityGroup."""
        return f"{self.service}.{self.delete_action}"

    def arn(self, resource: str, account: str = ACCOUNT) -> str:
        service = {"elb": "elasticloadbalancing", "elbv2": "elasticloadbalancing"}.get(self.service, self.service)
        return f"arn:aws:{service}:{REGION}:{account}:{resource}"

    @property
    def ids_by_arn(self) -> dict[str, str]:
        """The examples: ARNs, and the ids by which their resources are read."""
        return {(arn := self.arn(resource)): id_ or arn for resource, id_ in self.arns}

    def arn_of(self, id_: str, account: str) -> str:
        """The ARN of an existing one."""
        resource = self.arns[0].resource
        return id_ if id_.startswith("arn:") else self.arn(f"{resource.partition('/')[0]}/{id_}", account)

    def missing(self, account: str = ACCOUNT) -> str:
        """An id of the right form that no resource has."""
        resource, id_ = self.arns[0]
        if self.service == "ec2":
            return f"{id_.partition('-')[0]}-{0:017x}"
        return id_ or self.arn(resource, account)


def _by_filter(name: str) -> Callable[[str], dict[str, Any]]:
    return lambda id_: {"Filters": [{"Name": name, "Values": [id_]}]}


def _by(argument: str) -> Callable[[str], dict[str, Any]]:
    return lambda id_: {argument: id_}


def _by_list(argument: str) -> Callable[[str], dict[str, Any]]:
    return lambda id_: {argument: [id_]}


def _is_deleted(item: Mapping[str, Any]) -> bool:
    return str(item["State"]).lower() == "deleted"


async def _nat_gateway(builder: AwsBuilder, new: NewAwsResource) -> str:
    return await builder.nat_gateway(new.vpc, new.address or await builder.elastic_ip(), new.tags)


_ROWS: Final = (
    AwsKindRow(
        name="aws.classic-balancer",
        service="elb",
        create=lambda builder, new: builder.classic(new.vpc, new.tags, groups=new.groups),
        describe="describe_load_balancers",
        items="LoadBalancerDescriptions",
        id_field="LoadBalancerName",
        describes=_by_list("LoadBalancerNames"),
        delete="delete_load_balancer",
        deletes=_by("LoadBalancerName"),
        arns=(ArnExample("loadbalancer/web", "web"), ArnExample("loadbalancer/app", "app")),
        not_found=("LoadBalancerNotFound",),
        deletes_missing=True,
        has_service_tag=True,
    ),
    AwsKindRow(
        name="aws.balancer",
        service="elbv2",
        create=lambda builder, new: builder.balancer(new.vpc, new.tags, groups=new.groups),
        describe="describe_load_balancers",
        items="LoadBalancers",
        id_field="LoadBalancerArn",
        describes=_by_list("LoadBalancerArns"),
        delete="delete_load_balancer",
        deletes=_by("LoadBalancerArn"),
        arns=tuple(ArnExample(f"loadbalancer/{type_}/web/50dc6c495c0c9188") for type_ in ("app", "net", "gwy")),
        not_found=("LoadBalancerNotFound",),
        deletes_missing=True,
        has_service_tag=True,
    ),
    AwsKindRow(
        name="aws.target-group",
        service="elbv2",
        create=lambda builder, new: builder.target_group(new.vpc, new.tags),
        describe="describe_target_groups",
        items="TargetGroups",
        id_field="TargetGroupArn",
        describes=_by_list("TargetGroupArns"),
        delete="delete_target_group",
        deletes=_by("TargetGroupArn"),
        arns=(ArnExample("targetgroup/web/73e2d6bc24d8a067"),),
        not_found=("TargetGroupNotFound",),
        has_service_tag=True,
    ),
    AwsKindRow(
        name="aws.security-group",
        service="ec2",
        create=lambda builder, new: builder.group(new.vpc, new.tags),
        describe="describe_security_groups",
        items="SecurityGroups",
        id_field="GroupId",
        describes=_by_filter("group-id"),
        delete="delete_security_group",
        deletes=_by("GroupId"),
        arns=(ArnExample("security-group/sg-1", "sg-1"),),
        not_found=("InvalidGroup.NotFound",),
        delete_bucket=(50, 5),
        ignored=lambda item: item["GroupName"] == "default",
    ),
    AwsKindRow(
        name="aws.network-interface",
        service="ec2",
        create=lambda builder, new: builder.interface(new.vpc, new.groups, new.tags),
        describe="describe_network_interfaces",
        items="NetworkInterfaces",
        id_field="NetworkInterfaceId",
        describes=_by_filter("network-interface-id"),
        delete="delete_network_interface",
        deletes=_by("NetworkInterfaceId"),
        arns=(ArnExample("network-interface/eni-1", "eni-1"),),
        not_found=("InvalidNetworkInterfaceID.NotFound",),
        delete_bucket=(100, 5),
    ),
    AwsKindRow(
        name="aws.vpc-endpoint",
        service="ec2",
        create=lambda builder, new: builder.endpoint(new.vpc, new.groups, new.tags),
        describe="describe_vpc_endpoints",
        items="VpcEndpoints",
        id_field="VpcEndpointId",
        describes=_by_filter("vpc-endpoint-id"),
        delete="delete_vpc_endpoints",
        deletes=_by_list("VpcEndpointIds"),
        arns=(ArnExample("vpc-endpoint/vpce-1", "vpce-1"),),
        not_found=("InvalidVpcEndpoint.NotFound", "InvalidVpcEndpointId.NotFound"),
        delete_bucket=(4, 0.3),
        in_tagging_api=False,
        takes="endpoint_goes",
        ignored=_is_deleted,
    ),
    AwsKindRow(
        name="aws.nat-gateway",
        service="ec2",
        create=_nat_gateway,
        describe="describe_nat_gateways",
        items="NatGateways",
        id_field="NatGatewayId",
        describes=_by_filter("nat-gateway-id"),
        delete="delete_nat_gateway",
        deletes=_by("NatGatewayId"),
        arns=(ArnExample("natgateway/nat-1", "nat-1"),),
        not_found=("NatGatewayNotFound",),
        delete_bucket=(10, 1),
        takes="nat_gateway_goes",
        # Those that are gone are shown for an hour.
        ignored=_is_deleted,
    ),
    AwsKindRow(
        name="aws.elastic-ip",
        service="ec2",
        create=lambda builder, new: builder.elastic_ip(new.tags),
        describe="describe_addresses",
        items="Addresses",
        id_field="AllocationId",
        describes=_by_filter("allocation-id"),
        delete="release_address",
        deletes=_by("AllocationId"),
        arns=(ArnExample("elastic-ip/eipalloc-1", "eipalloc-1"),),
        not_found=("InvalidAllocationID.NotFound",),
        delete_bucket=(50, 5),
        in_vpc=False,
        in_tagging_api=False,
        paged=False,
    ),
    AwsKindRow(
        name="aws.volume",
        service="ec2",
        create=lambda builder, new: builder.volume(new.tags),
        describe="describe_volumes",
        items="Volumes",
        id_field="VolumeId",
        describes=_by_filter("volume-id"),
        delete="delete_volume",
        deletes=_by("VolumeId"),
        arns=(ArnExample("volume/vol-1", "vol-1"),),
        not_found=("InvalidVolume.NotFound",),
        delete_bucket=(100, 5),
        in_vpc=False,
    ),
)
AWS_KINDS: Final[Mapping[str, AwsKindRow]] = {row.name: row for row in _ROWS}
EC2_KINDS: Final[Mapping[str, AwsKindRow]] = {row.name: row for row in _ROWS if row.service == "ec2"}
