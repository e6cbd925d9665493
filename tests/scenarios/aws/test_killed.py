"""Worker killed in the middle of an AWS call, in every stage of a deletion; another worker takes over.
The call in flight arrives after the death of its caller."""

import time
from collections import Counter

import pytest

from service.sources.capa import DEFAULT_TASKS, Task
from standins.aws import AwsFault
from standins.aws.tags import by_cloud_provider
from tests.scenarios.aws.account_contents import assert_gone
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.aws.capi_clusters import Infra
from tests.scenarios.aws.cluster_resources import a_few, bystanders, one_of_each

pytestmark = pytest.mark.long

LAST_LOOK = "the last look"
LATE_TARGETS = "what the last look found"
SNAPSHOTS = "snapshots"
STAGES = {
    "planning": "tagging.GetResources",
    "balancers": "elbv2.DeleteLoadBalancer",
    "classic balancers": "elb.DeleteLoadBalancer",
    "target groups": "elbv2.DeleteTargetGroup",
    "rules": "ec2.RevokeSecurityGroupIngress",
    "groups": "ec2.DeleteSecurityGroup",
    SNAPSHOTS: "ec2.CreateSnapshot",
    "volumes": "ec2.DeleteVolume",
    "NAT gateways": "ec2.DeleteNatGateway",
    "addresses": "ec2.ReleaseAddress",
    LAST_LOOK: "tagging.GetResources",
    LATE_TARGETS: "elbv2.DeleteLoadBalancer",
}
AFTER_THE_REST = (LAST_LOOK, LATE_TARGETS)
CHOSEN: dict[str, tuple[Task, ...]] = {
    SNAPSHOTS: ("volume",),
    "volumes": ("volume",),
    "NAT gateways": ("nat-gateway", "elastic-ip"),
    "addresses": ("nat-gateway", "elastic-ip"),
}
"""Tasks that are off by default."""
LATE = 4.0
"""Seconds within which the worker has to be killed."""


@pytest.mark.parametrize("at", STAGES)
async def test_a_worker_killed_in_any_stage_loses_nothing_and_touches_nothing_else(
    scenario: AwsScenario, at: str
) -> None:
    scenario.document["worker"] |= {"lease": "6s", "attempt_timeout": "5500ms", "plan_claim": "3s"}
    scenario.document["redis"]["call_timeout"] = "2s"
    scenario.document["aws"] |= {"tasks": [*DEFAULT_TASKS, *CHOSEN.get(at, ())], "snapshot_first": True}
    if at in AFTER_THE_REST:
        scenario.document["aws"]["settle"] = "5s"
    late = AwsFault(what="slow", action=STAGES[at], account=scenario.account, seconds=LATE, times=1)
    first = scenario.launch("work")
    await scenario.start(works=False)
    infra = await scenario.unmanaged("prod")
    theirs = await one_of_each(scenario.builder, infra.tag, infra.vpc)
    await bystanders(scenario.builder, infra.tag, infra.vpc)
    doomed = theirs.ids | await chosen(scenario, infra, CHOSEN.get(at, ()))
    before = await scenario.account_contents()
    await scenario.until_marked(infra)
    await first.until_ready()
    if at not in AFTER_THE_REST:
        await scenario.aws.set_faults(late)
    await scenario.delete(infra)
    if at in AFTER_THE_REST:
        await scenario.until_gone(*theirs.ids)
        await scenario.aws.set_faults(late)
    again = frozenset[str]()
    if at == LATE_TARGETS:
        # By a controller that still runs.
        again = (await a_few(scenario.builder, infra.tag, infra.vpc)).ids
    await scenario.until("the call is on its way", scenario.aws.delayed)
    first.kill()
    died = time.time()
    second = scenario.launch("work")
    await scenario.until_released(infra)
    await second.stop()
    (arrived,) = [one for one in await scenario.asked() if one.delayed]
    # 400: who took over, or another job of the first worker's, had done the same meanwhile.
    assert (arrived.action, arrived.status) in {(STAGES[at], 200), (STAGES[at], 400)}
    assert arrived.real > died, "it was over before the worker died"
    after = await scenario.account_contents()
    assert_gone(before, after, doomed)
    assert not again & after.keys()
    (record,) = await scenario.deletions()
    assert (record.state, record.left, record.abandoned, record.given_up) == ("done", 0, 0, 0)
    await assert_saved_first(scenario, {one for one in doomed if one.startswith("vol-")})


async def chosen(scenario: AwsScenario, infra: Infra, tasks: tuple[Task, ...]) -> frozenset[str]:
    """What those tasks are to collect; beside it, the same of another cluster."""
    builder, ours, others = scenario.builder, by_cloud_provider(infra.tag), by_cloud_provider("other")
    if "volume" in tasks:
        await builder.volume(others)
        await builder.volume(ours)
        by_tag = [{"Name": "tag-key", "Values": list(ours)}]
        # One of them was there already: without the task it is none of our business.
        return frozenset(one["VolumeId"] for one in (await builder.ec2.describe_volumes(Filters=by_tag))["Volumes"])
    if "nat-gateway" not in tasks:
        return frozenset()
    address, other = await builder.elastic_ip(ours), await builder.elastic_ip(others)
    await builder.nat_gateway(infra.vpc, other, others)
    gateway = await builder.nat_gateway(infra.vpc, address, ours)
    (shown,) = (await builder.ec2.describe_nat_gateways(NatGatewayIds=[gateway]))["NatGateways"]
    # Its interface goes with it.
    interfaces = (one["NetworkInterfaceId"] for one in shown["NatGatewayAddresses"])
    return frozenset((address, gateway, *interfaces))


async def assert_saved_first(scenario: AwsScenario, volumes: set[str]) -> None:
    """A snapshot too many does no harm, one too few does."""
    found = (await scenario.builder.ec2.describe_snapshots(OwnerIds=["self"]))["Snapshots"]
    saved = Counter(one["VolumeId"] for one in found if one["State"] == "completed")
    assert volumes <= set(saved)
    for volume in volumes:
        asked = [one.action for one in await scenario.changes() if volume in one.ids]
        assert asked.index("ec2.CreateSnapshot") < asked.index("ec2.DeleteVolume")
