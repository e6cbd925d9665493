"""A worker is killed in the middle of a call to AWS, in every stage of a deletion; another one takes over.
The call that was on its way arrives after its caller's death, as calls do."""

import time
from collections import Counter

import pytest

from service.contract.aws import DEFAULT_TASKS, Task
from standins.aws import Fault
from standins.aws.tags import by_cloud_provider
from tests.scenarios.aws.belongings import bystanders, one_of_each
from tests.scenarios.aws.clusters import Infra
from tests.scenarios.aws.holdings import assert_gone
from tests.scenarios.aws.stage import Stage

pytestmark = pytest.mark.long

LAST_LOOK = "the last look"
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
}
CHOSEN: dict[str, tuple[Task, ...]] = {
    SNAPSHOTS: ("volume",),
    "volumes": ("volume",),
    "NAT gateways": ("nat-gateway", "elastic-ip"),
    "addresses": ("nat-gateway", "elastic-ip"),
}
"""Tasks that nobody does unless he is asked to."""
LATE = 4.0
"""Seconds within which the worker has to be killed."""


@pytest.mark.parametrize("at", STAGES)
async def test_a_worker_killed_in_any_stage_loses_nothing_and_touches_nothing_else(stage: Stage, at: str) -> None:
    stage.document["worker"] |= {"lease": "6s", "attempt_timeout": "5500ms", "plan_claim": "3s"}
    stage.document["redis"]["call_timeout"] = "2s"
    stage.document["aws"] |= {"tasks": [*DEFAULT_TASKS, *CHOSEN.get(at, ())], "snapshot_first": True}
    if at == LAST_LOOK:
        stage.document["aws"]["settle"] = "5s"
    late = Fault(what="slow", action=STAGES[at], account=stage.account, seconds=LATE, times=1)
    first = stage.launch("work")
    await stage.start(works=False)
    infra = await stage.unmanaged("prod")
    theirs = await one_of_each(stage.world, infra.tag, infra.vpc)
    await bystanders(stage.world, infra.tag, infra.vpc)
    doomed = theirs.ids | await chosen(stage, infra, CHOSEN.get(at, ()))
    before = await stage.holdings()
    await stage.until_marked(infra)
    await first.until_ready()
    if at != LAST_LOOK:
        await stage.aws.trouble(late)
    await stage.delete(infra)
    if at == LAST_LOOK:
        await stage.until_gone(*theirs.ids)
        await stage.aws.trouble(late)
    await stage.until("the call is on its way", stage.aws.delayed)
    first.kill()
    died = time.time()
    second = stage.launch("work")
    await stage.until_released(infra)
    await second.stop()
    (arrived,) = [one for one in await stage.asked() if one.delayed]
    # 400: who took over, or another job of the first worker's, had done the same meanwhile.
    assert (arrived.action, arrived.status) in {(STAGES[at], 200), (STAGES[at], 400)}
    assert arrived.real > died, "it was over before the worker died"
    assert_gone(before, await stage.holdings(), doomed)
    (record,) = await stage.deletions()
    assert (record.state, record.left, record.abandoned, record.given_up) == ("done", 0, 0, 0)
    await assert_saved_first(stage, {one for one in doomed if one.startswith("vol-")})


async def chosen(stage: Stage, infra: Infra, tasks: tuple[Task, ...]) -> frozenset[str]:
    """What those tasks are to collect; beside it, the same of another cluster."""
    world, ours, others = stage.world, by_cloud_provider(infra.tag), by_cloud_provider("other")
    if "volume" in tasks:
        await world.volume(others)
        await world.volume(ours)
        by_tag = [{"Name": "tag-key", "Values": list(ours)}]
        # One of them was there already: without the task it is none of our business.
        return frozenset(one["VolumeId"] for one in (await world.ec2.describe_volumes(Filters=by_tag))["Volumes"])
    if "nat-gateway" not in tasks:
        return frozenset()
    address, other = await world.elastic_ip(ours), await world.elastic_ip(others)
    await world.nat_gateway(infra.vpc, other, others)
    gateway = await world.nat_gateway(infra.vpc, address, ours)
    (shown,) = (await world.ec2.describe_nat_gateways(NatGatewayIds=[gateway]))["NatGateways"]
    # Its interface goes with it.
    interfaces = (one["NetworkInterfaceId"] for one in shown["NatGatewayAddresses"])
    return frozenset((address, gateway, *interfaces))


async def assert_saved_first(stage: Stage, volumes: set[str]) -> None:
    """A snapshot too many does no harm, one too few does."""
    found = (await stage.world.ec2.describe_snapshots(OwnerIds=["self"]))["Snapshots"]
    saved = Counter(one["VolumeId"] for one in found if one["State"] == "completed")
    assert volumes <= set(saved)
    for volume in volumes:
        asked = [one.action for one in await stage.changes() if volume in one.ids]
        assert asked.index("ec2.CreateSnapshot") < asked.index("ec2.DeleteVolume")
