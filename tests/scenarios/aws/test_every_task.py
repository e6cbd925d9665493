"""All tasks at once, by the settings: what nobody collects unless it is asked for goes in its order, by its tag."""

import pytest

from service.contract.aws import TASKS, ownership_tag
from standins.aws.tags import by_balancer_controller, by_cloud_provider
from tests.scenarios.aws.belongings import a_few
from tests.scenarios.aws.holdings import assert_gone
from tests.scenarios.aws.stage import Stage

pytestmark = pytest.mark.long


async def test_every_task_collects_what_it_is_named_for_and_leaves_what_is_not_the_clusters(stage: Stage) -> None:
    stage.document["aws"]["tasks"] = list(TASKS)
    await stage.aws.behave(nat_gateway_goes=10)
    await stage.start()
    infra, world = await stage.unmanaged("prod"), stage.world
    ours, others = by_cloud_provider("prod"), by_cloud_provider("other")
    theirs = await a_few(world, "prod", infra.vpc)
    doomed, spared = set(theirs.ids), set[str]()
    for tags in (ours, others, {ownership_tag("prod"): "shared"}):
        address = await world.elastic_ip(tags)
        group = await world.group(infra.vpc, tags)
        made = [
            address,
            await world.elastic_ip(tags),
            await world.nat_gateway(infra.vpc, address, tags),
            await world.endpoint(infra.vpc, [group], tags),
            await world.interface(infra.vpc, [group], tags),
            await world.volume(tags),
            group,
        ]
        (doomed if tags is ours else spared).update(made)
    # By the AWS Load Balancer Controller, which has a tag of its own.
    for name in ("prod", "other"):
        tags = by_balancer_controller(name)
        group = await world.group(infra.vpc, tags)
        app = await world.balancer(infra.vpc, tags, groups=[group])
        target = await world.target_group(infra.vpc, tags, behind=app)
        (doomed if name == "prod" else spared).update((group, app, target))
    before = await stage.holdings()
    await stage.until_marked(infra)
    await stage.delete(infra)
    await stage.until_released(infra)
    after = await stage.holdings()
    # A NAT gateway and an endpoint have interfaces, which go with them.
    gone = {id_ for id_ in before.keys() - after.keys() if id_.startswith("eni-")}
    assert spared <= after.keys()
    assert_gone(before, after, doomed | gone)
