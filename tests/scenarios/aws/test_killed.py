"""A worker is killed in the middle of a call to AWS, in every stage of a deletion; another one takes over.
The call that was on its way arrives after its caller's death, as calls do."""

import pytest

from service.local.aws import Fault
from tests.scenarios.aws.belongings import bystanders, one_of_each
from tests.scenarios.aws.holdings import assert_gone
from tests.scenarios.aws.stage import Stage

LAST_LOOK = "the last look"
STAGES = {
    "planning": "tagging.GetResources",
    "balancers": "elbv2.DeleteLoadBalancer",
    "classic balancers": "elb.DeleteLoadBalancer",
    "target groups": "elbv2.DeleteTargetGroup",
    "rules": "ec2.RevokeSecurityGroupIngress",
    "groups": "ec2.DeleteSecurityGroup",
    LAST_LOOK: "tagging.GetResources",
}


@pytest.mark.parametrize(
    "at", ["groups", *(pytest.param(one, marks=pytest.mark.long) for one in STAGES if one != "groups")]
)
async def test_a_worker_killed_in_any_stage_loses_nothing_and_touches_nothing_else(stage: Stage, at: str) -> None:
    stage.document["worker"] |= {"lease": "3s", "attempt_timeout": "2500ms", "plan_claim": "2s"}
    stage.document["redis"]["call_timeout"] = "2s"
    if at == LAST_LOOK:
        stage.document["aws"]["settle"] = "1500ms"
    late = Fault(what="slow", action=STAGES[at], account=stage.account, seconds=1.5, times=1)
    first = stage.launch("work")
    await stage.start(works=False)
    infra = await stage.unmanaged("prod")
    theirs = await one_of_each(stage.world, infra.tag, infra.vpc)
    await bystanders(stage.world, infra.tag, infra.vpc)
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
    dead = len(await stage.asked(STAGES[at]))
    second = stage.launch("work")
    await stage.until_released(infra)
    await second.stop()
    assert len(await stage.asked(STAGES[at])) > dead, "nothing arrived after the worker's death"
    assert_gone(before, await stage.holdings(), theirs.ids)
    (record,) = await stage.deletions()
    assert (record.state, record.left, record.abandoned, record.given_up) == ("done", 0, 0, 0)
