"""A controller of the tenant cluster that nobody has stopped yet makes again what was just deleted."""

import pytest

from standins.aws.tags import by_cloud_provider
from tests.scenarios.aws.belongings import SERVICE, a_few
from tests.scenarios.aws.holdings import assert_gone
from tests.scenarios.aws.stage import Stage

pytestmark = pytest.mark.long

SETTLE = 5.0
"""Seconds within which the controller has to make it again."""


async def test_what_is_made_again_before_the_last_look_is_collected_again(stage: Stage) -> None:
    stage.document["aws"]["settle"] = f"{SETTLE}s"
    await stage.aws.behave(drain=0)
    await stage.start()
    infra = await stage.unmanaged("prod")
    nothing = await stage.holdings()
    theirs = await a_few(stage.world, infra.tag, infra.vpc)
    await stage.until_marked(infra)
    await stage.delete(infra)
    await stage.until_gone(*theirs.ids)
    group = await stage.world.group(infra.vpc, by_cloud_provider(infra.tag))
    net = await stage.world.balancer(infra.vpc, by_cloud_provider(infra.tag, SERVICE), of="net", groups=[group])
    target = await stage.world.target_group(infra.vpc, by_cloud_provider(infra.tag, SERVICE), behind=net)
    assert not stage.is_gone(infra), "it was released before anybody looked again"
    await stage.until_released(infra)
    assert_gone(nothing, await stage.holdings(), ())
    deleted = {one for entry in await stage.changes() if entry.status == 200 for one in entry.ids}
    assert {net, target, group} <= deleted
    # A list for the plan, one after the first removals had settled, one that was empty, and one after that had settled.
    planned, found, *_, last = [entry.real for entry in await stage.asked("tagging.GetResources")]
    removals = [entry.real for entry in await stage.changes()]
    assert planned < min(removals)
    assert found > max(at for at in removals if at < found) + SETTLE
    assert last > max(removals) + SETTLE
