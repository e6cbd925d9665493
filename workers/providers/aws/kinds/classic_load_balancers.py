"""Classic load balancers, which are identified by name. A name can be reused by another owner; the DNS name can't, so
it tells one incarnation from the next."""

from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind
from workers.providers.aws.model import AwsResource
from workers.providers.aws.reading.ec2 import Item
from workers.providers.aws.reading.elb import ElbReader, Tags

NAME = "aws.classic-balancer"


def _parse(item: Item, tags: Tags) -> AwsResource:
    return AwsResource(
        kind=NAME,
        id=item["LoadBalancerName"],
        tags=tags,
        vpc=item.get("VPCId") or "",
        groups=tuple(item.get("SecurityGroups") or ()),
        made=item.get("CreatedTime"),
        facts=item.get("DNSName") or "",
    )


def _incarnation(resource: AwsResource) -> str:
    return str(resource.facts)


async def _delete(attempt: AwsAttempt) -> None:
    await attempt.client.call("elb", "delete_load_balancer", LoadBalancerName=attempt.resource.id)


_READER = ElbReader(
    service="elb", operation="describe_load_balancers", key="LoadBalancerDescriptions", ids="LoadBalancerNames",
    id="LoadBalancerName", tag_ids="LoadBalancerNames", tag_id="LoadBalancerName", parse=_parse,
)  # fmt: skip

CLASSIC_LOAD_BALANCER = AwsKind(
    name=NAME,
    service="elb",
    delete_operation="elb.DeleteLoadBalancer",
    check_operation="elb.DescribeLoadBalancers",
    arn=("elasticloadbalancing", "loadbalancer"),
    read=_READER.read,
    read_operations=("elb.DescribeLoadBalancers", "elb.DescribeTags"),
    exists=_READER.exists,
    list_all=_READER.list_all,
    lists_whole_region=True,
    delete=_delete,
    incarnation=_incarnation,
)
