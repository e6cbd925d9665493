"""Declared kinds: found by ARN, name and task, each with lanes whose draws are known."""

import re
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from service.sources.capa import DEFAULT_TASKS, TASKS
from tests.aws_kinds import AWS_KINDS
from workers.collectors.capa.kinds import CAPA_KINDS, TASKS_OUTSIDE_VPC, kinds_of
from workers.providers.aws.arns import split_arn
from workers.providers.aws.due_times import aligned_delay
from workers.providers.aws.kinds import KINDS, kind_named, kind_of_arn
from workers.providers.aws.kinds.volumes import VOLUME
from workers.providers.aws.limits import AwsLimits

FRONT = "arn:aws:{}:eu-west-1:111122223333:"
ELB, EC2 = FRONT.format("elasticloadbalancing"), FRONT.format("ec2")
PLACE = "aws/111122223333/eu-west-1"
LIMITS = AwsLimits(KINDS)


@pytest.mark.parametrize(
    ("arn", "kind", "id_"),
    [
        *((arn, row.name, id_) for row in AWS_KINDS.values() for arn, id_ in row.ids_by_arn.items()),
        ("arn:aws-cn:ec2:cn-north-1:111122223333:volume/vol-1", "aws.volume", "vol-1"),
        ("arn:aws-us-gov:ec2:us-gov-west-1:111122223333:volume/vol-1", "aws.volume", "vol-1"),
    ],
)
def test_an_arn_says_its_kind_and_the_id_that_it_is_read_by(arn: str, kind: str, id_: str) -> None:
    parsed = kind_of_arn(arn)
    assert parsed is not None
    assert (parsed[0].name, parsed[1]) == (kind, id_)


@pytest.mark.parametrize(
    "arn",
    [
        "",
        "arn",
        "arn:aws:ec2",
        "sg-1",
        "arn:other:ec2:eu-west-1:111122223333:volume/vol-1",
        "arn:aws:ec2::111122223333:volume/vol-1",
        "arn:aws:ec2:eu-west-1::volume/vol-1",
        EC2 + "volume",
        EC2 + "volume/",
        EC2 + "volume/vol-1/more",
        EC2 + "instance/i-1",
        ELB + "loadbalancer/",
        ELB + "loadbalancer/app/web",
        ELB + "loadbalancer/app//50dc6c495c0c9188",
        ELB + "loadbalancer/new/web/50dc6c495c0c9188",
        ELB + "loadbalancer/web/more",
        ELB + "targetgroup/web",
        ELB + "listener/app/web/50dc6c495c0c9188/f2f7dc8efc522ab2",
        "arn:aws:volume:eu-west-1:111122223333:volume/vol-1",
    ],
)
def test_an_arn_that_can_not_be_understood_is_of_no_kind(arn: str) -> None:
    assert kind_of_arn(arn) is None


def test_a_kind_may_have_another_separator_in_its_arn() -> None:
    queue = msgspec.structs.replace(
        VOLUME, name="aws.toy", arn=("rds", "cluster"), arn_separator=":", id_pattern=r"[a-z-]+"
    )
    rds = FRONT.format("rds")
    assert kind_of_arn(rds + "cluster:my-own", (*KINDS, queue)) == (queue, "my-own")
    for other in ("cluster/my-own", "cluster:", "cluster:my:own", "db:my-own"):
        assert kind_of_arn(rds + other, (*KINDS, queue)) is None
    assert split_arn(rds + "cluster:my-own", ":") == ("aws", "rds", "eu-west-1", "111122223333", "cluster", "my-own")
    assert split_arn("arn:aws:s3:::bucket") == ("aws", "s3", "", "", "bucket", "")
    assert split_arn("arn:aws:s3::bucket") is None


def test_every_task_has_its_kinds_and_every_kind_its_task() -> None:
    assert all(kinds_of(task) for task in TASKS)
    assert {kind.name for task in TASKS for kind in kinds_of(task)} == CAPA_KINDS.keys()
    by_default = {kind.name for task in DEFAULT_TASKS for kind in kinds_of(task)}
    assert by_default == {"aws.classic-balancer", "aws.balancer", "aws.target-group", "aws.security-group"}
    of_lbc = {kind.name for kind in kinds_of("aws-load-balancer-controller")}
    assert of_lbc == {"aws.balancer", "aws.target-group", "aws.security-group"}
    # The provider may have kinds that are no cluster's.
    assert CAPA_KINDS.keys() <= {kind.name for kind in KINDS}
    assert [kind_named(kind.name) for kind in KINDS] == list(KINDS)
    assert kind_named("aws.settled") is None


def test_every_task_is_in_the_table_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "aws.md").read_text()
    (table,) = re.findall(r"^\| task \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    named = [task for row in table.splitlines() for task in re.findall(r"`([^`]+)`", row.split("|")[1])]
    assert sorted(named) == sorted(TASKS)


def test_what_depends_goes_after_what_it_depends_on_and_nothing_else_waits() -> None:
    stages = {name: (row.chain, row.stage) for name, row in CAPA_KINDS.items()}
    balancers = stages["aws.balancer"]
    assert stages["aws.target-group"] == stages["aws.security-group"] == (balancers[0], balancers[1] + 1)
    assert stages["aws.nat-gateway"] < stages["aws.elastic-ip"]
    apart = CAPA_KINDS.keys() - {"aws.balancer", "aws.target-group", "aws.security-group", "aws.elastic-ip"}
    assert len({balancers[0], *(stages[name][0] for name in apart)}) == len(apart) + 1


def test_every_kind_declares_its_vpc_tagging_and_limits() -> None:
    assert {kind.name: kind.in_vpc for kind in KINDS} == {row.name: row.in_vpc for row in AWS_KINDS.values()}
    assert {row.task for row in CAPA_KINDS.values() if not row.kind.in_vpc} == TASKS_OUTSIDE_VPC
    in_tagging_api = {row.name: row.in_tagging_api for row in AWS_KINDS.values()}
    assert {kind.name: kind.in_tagging_api for kind in KINDS} == in_tagging_api
    for kind in KINDS:
        for operation, (capacity, rate) in kind.limits.items():
            (draw,) = LIMITS.of("eu-west-1", operation)
            assert (draw.limit.capacity / draw.limit.per.total_seconds()) == pytest.approx(rate), operation
            assert capacity > 0


def test_every_lane_of_a_kind_draws_on_the_call_that_it_is_named_for() -> None:
    for kind in KINDS:
        for operation in (kind.delete_operation, kind.check_operation, *kind.steps):
            draws = LIMITS.of_lane(f"{PLACE}/{operation}")
            assert draws, operation
            assert {draw.limit.name.partition("/")[0] for draw in draws} == {"eu-west-1"}
    assert LIMITS.of_lane(f"{PLACE}/tag.GetResources") is None
    assert LIMITS.of_lane("simulated/acct/here/delete") is None


def test_a_deletion_has_tokens_for_its_reads_too_and_waits_for_company_where_they_are_scarce() -> None:
    draws = {draw.limit.name: draw for draw in LIMITS.of_lane(f"{PLACE}/ec2.DeleteSecurityGroup") or ()}
    assert {name: draw.cost for name, draw in draws.items()} == {
        "eu-west-1/ec2.DeleteSecurityGroup": 1,
        "eu-west-1/ec2.DescribeSecurityGroups": 3,
        "eu-west-1/ec2.DescribeNetworkInterfaces": 1,
    }
    assert draws["eu-west-1/ec2.DeleteSecurityGroup"].together == 10
    (checking,) = LIMITS.of_lane(f"{PLACE}/ec2.DescribeSecurityGroups") or ()
    assert (checking.cost, checking.together) == (1, 0)


def test_what_is_looked_at_again_is_looked_at_in_rounds() -> None:
    period = timedelta(seconds=5)
    ends = {now + aligned_delay(period, 0.5, now).total_seconds() for now in (1000.0, 1001.0, 1002.4)}
    assert ends == {1005.0}
    assert aligned_delay(period, 0.5, 1002.6) == timedelta(seconds=7.4)
    assert aligned_delay(period, 0.1, 1004.4) == timedelta(seconds=0.6)
    assert aligned_delay(period, 0.1, 1004.8) == timedelta(seconds=5.2)
