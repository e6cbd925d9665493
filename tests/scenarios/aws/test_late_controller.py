"""Controller of the tenant cluster that still runs and creates again what was just deleted."""

import pytest

from standins.aws.tags import by_cloud_provider
from tests.scenarios.aws.account_contents import assert_gone
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.aws.cluster_resources import SERVICE, a_few

pytestmark = pytest.mark.long

SETTLE = 5.0
"""Seconds within which the controller has to make it again."""


async def test_what_is_made_again_before_the_last_look_is_collected_again(scenario: AwsScenario) -> None:
    scenario.document["aws"]["settle"] = f"{SETTLE}s"
    await scenario.aws.behave(drain=0)
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    nothing = await scenario.account_contents()
    theirs = await a_few(scenario.builder, infra.tag, infra.vpc)
    await scenario.until_marked(infra)
    await scenario.delete(infra)
    await scenario.until_gone(*theirs.ids)
    group = await scenario.builder.group(infra.vpc, by_cloud_provider(infra.tag))
    net = await scenario.builder.balancer(infra.vpc, by_cloud_provider(infra.tag, SERVICE), of="net", groups=[group])
    target = await scenario.builder.target_group(infra.vpc, by_cloud_provider(infra.tag, SERVICE), behind=net)
    assert not scenario.is_gone(infra), "it was released before anybody looked again"
    await scenario.until_released(infra)
    assert_gone(nothing, await scenario.account_contents(), ())
    deleted = {one for entry in await scenario.changes() if entry.status == 200 for one in entry.ids}
    assert {net, target, group} <= deleted
    # A list for the plan, one after the first removals had settled, one that was empty, and one after that had settled.
    planned, found, *_, last = [entry.real for entry in await scenario.asked("tagging.GetResources")]
    removals = [entry.real for entry in await scenario.changes()]
    assert planned < min(removals)
    assert found > max(at for at in removals if at < found) + SETTLE
    assert last > max(removals) + SETTLE
