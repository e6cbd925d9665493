"""Contents of an AWS account in one region, from its own describe calls, for comparison before and after.
Each resource is one text under its id, including its listeners, rules and tags."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from standins.aws.builder import AwsBuilder
from tests.aws import described
from tests.aws_kinds import AWS_KINDS

Holdings = Mapping[str, str]
"""By id: a name for classic balancers, an ARN for the others and for target groups, an id of EC2 for the rest."""

_TAGS_AT_ONCE: Final = 20
_EC2: Final[tuple[tuple[str, str, str, dict[str, Any]], ...]] = (
    ("describe_vpcs", "Vpcs", "VpcId", {}),
    ("describe_subnets", "Subnets", "SubnetId", {}),
    ("describe_snapshots", "Snapshots", "SnapshotId", {"OwnerIds": ["self"]}),
)
# Kinds that are more than their describe call shows.
_DETAILED: Final = ("aws.security-group", "aws.classic-balancer", "aws.balancer", "aws.target-group")


async def account_contents(builder: AwsBuilder) -> Holdings:
    parts = await asyncio.gather(
        _plain(builder), _groups(builder), _instances(builder), _classic(builder), _balancers(builder),
        _target_groups(builder),
    )  # fmt: skip
    return {id_: _text(item) for part in parts for id_, item in part.items()}


def assert_gone(before: Holdings, after: Holdings, doomed: Collection[str]) -> None:
    """Exactly these are gone, with the interfaces of the balancers among them; everything else is as it was."""
    gone = before.keys() - after.keys()
    left = set(doomed) - gone
    assert not left, f"still there: {left}"
    others = gone - set(doomed) - interfaces_of(before, doomed)
    assert not others, f"gone as well: {others}"
    assert_untouched(before, after, before.keys() - gone)


def assert_untouched(before: Holdings, after: Holdings, ids: Iterable[str]) -> None:
    for one in sorted(ids):
        assert after.get(one) == before[one], f"{one} is not as it was"


def interfaces_of(found: Holdings, balancers: Collection[str]) -> set[str]:
    """A balancer's interfaces name it."""
    words = {f"ELB {one.partition('loadbalancer/')[2] or one}" for one in balancers}
    enis = {id_: msgspec.json.decode(text) for id_, text in found.items() if id_.startswith("eni-")}
    return {id_ for id_, eni in enis.items() if eni.get("Description") in words}


def _text(item: Any) -> str:
    return msgspec.json.encode(item, order="deterministic").decode()


async def _plain(builder: AwsBuilder) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for operation, key, id_, given in _EC2:
        found |= {one[id_]: one for one in await described(builder.ec2, operation, key, **given)}
    for name, row in AWS_KINDS.items():
        if name not in _DETAILED:
            found |= await row.there(builder)
    for one in found.values():
        # It counts the interfaces in a subnet.
        one.pop("AvailableIpAddressCount", None)
    return found


async def _groups(builder: AwsBuilder) -> dict[str, Any]:
    """With their rules by id; the summary of them would only say the same again."""
    groups = await described(builder.ec2, "describe_security_groups", "SecurityGroups")
    rules = await described(builder.ec2, "describe_security_group_rules", "SecurityGroupRules")
    for group in groups:
        del group["IpPermissions"], group["IpPermissionsEgress"]
        group["Rules"] = {one["SecurityGroupRuleId"]: one for one in rules if one["GroupId"] == group["GroupId"]}
    return {group["GroupId"]: group for group in groups}


async def _instances(builder: AwsBuilder) -> dict[str, Any]:
    found = await described(builder.ec2, "describe_instances", "Reservations")
    all_ = [one for reservation in found for one in reservation["Instances"]]
    return {one["InstanceId"]: one for one in all_ if one["State"]["Name"] != "terminated"}


async def _classic(builder: AwsBuilder) -> dict[str, Any]:
    named = await AWS_KINDS["aws.classic-balancer"].there(builder)
    for some in _chunks(list(named)):
        answer = await builder.elb.describe_tags(LoadBalancerNames=some)
        for tags in answer["TagDescriptions"]:
            named[tags["LoadBalancerName"]]["Tags"] = tags["Tags"]
    return named


async def _balancers(builder: AwsBuilder) -> dict[str, Any]:
    named = await AWS_KINDS["aws.balancer"].there(builder)
    await _tag(builder, named)
    for arn, balancer in named.items():
        balancer["Listeners"] = await described(builder.elbv2, "describe_listeners", "Listeners", LoadBalancerArn=arn)
        attributes = await builder.elbv2.describe_load_balancer_attributes(LoadBalancerArn=arn)
        balancer["Attributes"] = attributes["Attributes"]
    return named


async def _target_groups(builder: AwsBuilder) -> dict[str, Any]:
    named = await AWS_KINDS["aws.target-group"].there(builder)
    await _tag(builder, named)
    return named


async def _tag(builder: AwsBuilder, named: Mapping[str, Any]) -> None:
    for some in _chunks(list(named)):
        answer = await builder.elbv2.describe_tags(ResourceArns=some)
        for tags in answer["TagDescriptions"]:
            named[tags["ResourceArn"]]["Tags"] = tags["Tags"]


def _chunks(ids: list[str]) -> Iterable[list[str]]:
    return (ids[first : first + _TAGS_AT_ONCE] for first in range(0, len(ids), _TAGS_AT_ONCE))
