"""Rate limits that AWS calls draw on, by account, region and action."""

from datetime import timedelta

import pytest

from service.contract import Limit, place_of
from tests.aws_kinds import AWS_KINDS, EC2_KINDS
from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.limits import AwsLimits, place_of_account

REGION = "eu-west-1"
LIMITS = AwsLimits(KINDS)


def size(limit: Limit) -> tuple[float, float]:
    """Capacity and refill per second."""
    return limit.capacity, round(limit.capacity / limit.per.total_seconds(), 3)


def sizes(operation: str) -> dict[str, tuple[float, float]]:
    return {draw.limit.name: size(draw.limit) for draw in LIMITS.of(REGION, operation)}


@pytest.mark.parametrize(
    ("action", "capacity", "rate"),
    [
        ("DescribeSecurityGroups", 100, 20),
        ("DescribeNetworkInterfaces", 100, 20),
        ("RevokeSecurityGroupIngress", 50, 5),
        ("DeleteSnapshot", 100, 5),
        *((row.delete_action, *row.delete_bucket) for row in EC2_KINDS.values() if row.delete_bucket),
    ],
)
def test_every_action_of_ec2_has_a_bucket_of_its_own(action: str, capacity: float, rate: float) -> None:
    assert sizes(f"ec2.{action}") == {f"{REGION}/ec2.{action}": (capacity, rate)}


@pytest.mark.parametrize("service", ["elb", "elbv2"])
def test_balancers_of_a_generation_share_buckets_for_changes_for_reads_and_for_all(service: str) -> None:
    everything = {f"{REGION}/{service}.all": (40, 10)}
    changes, reads = {f"{REGION}/{service}.changes": (20, 3)}, {f"{REGION}/{service}.reads": (40, 10)}
    for action in ("DeleteLoadBalancer", "DeleteTargetGroup", "DeleteListener", "ModifyLoadBalancerAttributes"):
        assert sizes(f"{service}.{action}") == changes | everything
    for action in ("DescribeLoadBalancers", "DescribeTags", "DescribeTargetGroups"):
        assert sizes(f"{service}.{action}") == reads | everything


def test_a_refusal_is_attributed_to_the_scarcer_limit() -> None:
    assert LIMITS.of(REGION, "elbv2.DeleteLoadBalancer")[0].limit.name == f"{REGION}/elbv2.changes"


def test_the_tagging_api_is_never_called_more_than_15_times_in_a_second() -> None:
    (draw,) = LIMITS.of(REGION, "tag.GetResources")
    capacity, rate = size(draw.limit)
    assert capacity + rate * timedelta(seconds=1).total_seconds() <= 15


def test_a_little_of_every_bucket_is_left_for_calls_that_arrive_closer_than_they_left() -> None:
    for operation in (*(row.delete_operation for row in AWS_KINDS.values()), "tag.GetResources"):
        for draw in LIMITS.of(REGION, operation):
            assert 0 < draw.limit.spare < draw.limit.capacity


def test_what_flows_into_a_full_bucket_while_the_reads_are_made_is_left_too() -> None:
    (groups,), (balancers, _) = [
        LIMITS.of(REGION, one) for one in ("ec2.DeleteSecurityGroup", "elb.DeleteLoadBalancer")
    ]
    for draw, rate in ((groups, 5), (balancers, 3)):
        assert draw.limit.spare >= rate * 0.5
        assert draw.limit.spare <= draw.limit.capacity / 4


def test_regions_have_buckets_of_their_own_and_share_an_account() -> None:
    here, there = LIMITS.of("eu-west-1", "ec2.DeleteVolume"), LIMITS.of("us-east-1", "ec2.DeleteVolume")
    assert here[0].limit.name != there[0].limit.name
    assert place_of_account("111122223333") == place_of(f"aws/111122223333/{REGION}/ec2.DeleteVolume")


def test_services_without_a_known_limit_draw_on_nothing() -> None:
    assert LIMITS.of(REGION, "sts.GetCallerIdentity") == ()


def test_many_managed_clusters_do_not_ask_for_theirs_all_at_once() -> None:
    assert sizes("eks.DescribeCluster") == {f"{REGION}/eks.DescribeCluster": (20, 10)}


def test_a_job_draws_on_the_call_of_its_lane_and_on_the_reads_that_go_with_it() -> None:
    lane = f"aws/111122223333/{REGION}/elbv2.DeleteLoadBalancer"
    draws = LIMITS.of_reads(lane, ("elbv2.DescribeLoadBalancers", "elbv2.DescribeTags"), together=10)
    assert draws is not None
    costs = {draw.limit.name: draw.cost for draw in draws}
    assert costs == {f"{REGION}/elbv2.changes": 1, f"{REGION}/elbv2.reads": 2, f"{REGION}/elbv2.all": 3}
    assert {draw.together for draw in draws} == {10}


def test_a_lane_that_is_named_for_a_read_makes_it_once() -> None:
    read = "ec2.DescribeSecurityGroups"
    draws = LIMITS.of_reads(f"aws/111122223333/{REGION}/{read}", (read,))
    assert draws is not None
    assert [draw.cost for draw in draws] == [1]


@pytest.mark.parametrize("lane", ["simulated/acct/here/delete", "aws/1/eu-west-1", "release", "aws/1/2/3/4"])
def test_a_lane_of_another_provider_is_ignored(lane: str) -> None:
    assert LIMITS.of_reads(lane) is None


@pytest.mark.parametrize(
    ("service", "operation", "action", "limited"),
    [
        ("ec2", "delete_security_group", "ec2:DeleteSecurityGroup", "ec2.DeleteSecurityGroup"),
        ("elb", "describe_load_balancers", "elasticloadbalancing:DescribeLoadBalancers", "elb.DescribeLoadBalancers"),
        ("elbv2", "delete_target_group", "elasticloadbalancing:DeleteTargetGroup", "elbv2.DeleteTargetGroup"),
        ("resourcegroupstaggingapi", "get_resources", "tag:GetResources", "tag.GetResources"),
        ("eks", "describe_cluster", "eks:DescribeCluster", "eks.DescribeCluster"),
    ],
)
def test_an_operation_is_known_by_its_names_in_policies_and_lanes(
    service: str, operation: str, action: str, limited: str
) -> None:
    assert operation_names(service, operation) == (action, limited)
