"""Classic load balancers, which are known by their names. A name can come back as somebody else's; the address that
went with it can not, so it tells one from the next."""

from workers.handlers.aws.model import Calls, Found, Kind
from workers.handlers.aws.reading.ec2 import Item
from workers.handlers.aws.reading.elb import ElbReader, Tags

NAME = "aws.classic-balancer"


def _form(item: Item, tags: Tags) -> Found:
    return Found(
        kind=NAME,
        id=item["LoadBalancerName"],
        tags=tags,
        vpc=item.get("VPCId") or "",
        groups=tuple(item.get("SecurityGroups") or ()),
        made=item.get("CreatedTime"),
        facts=item.get("DNSName") or "",
    )


def _born(found: Found) -> str:
    return str(found.facts)


async def _delete(calls: Calls, found: Found) -> None:
    await calls.call("elb", "delete_load_balancer", LoadBalancerName=found.id)


_READER = ElbReader(
    service="elb", operation="describe_load_balancers", key="LoadBalancerDescriptions", ids="LoadBalancerNames",
    id="LoadBalancerName", tag_ids="LoadBalancerNames", tag_id="LoadBalancerName", form=_form,
)  # fmt: skip

CLASSIC_BALANCER = Kind(
    name=NAME,
    task="load-balancer",
    service="elb",
    chain="classic",
    stage=0,
    operation="elb.DeleteLoadBalancer",
    checking="elb.DescribeLoadBalancers",
    arn=("elasticloadbalancing", "loadbalancer"),
    read=_READER.read,
    reads=("elb.DescribeLoadBalancers", "elb.DescribeTags"),
    exists=_READER.exists,
    list_all=_READER.list_all,
    whole=True,
    delete=_delete,
    of_service=True,
    born=_born,
)
