"""All tasks enabled in the settings: resources that are not collected by default are deleted in order, by their tag."""

import pytest

from service.sources.capa import TASKS, ownership_tag
from standins.aws.tags import by_balancer_controller, by_cloud_provider
from tests.aws_kinds import AWS_KINDS
from tests.scenarios.aws.account_contents import assert_gone
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.aws.cluster_resources import a_few
from workers.collectors.capa.kinds import CAPA_KINDS

pytestmark = pytest.mark.long

BY_ONE_TAG = [AWS_KINDS[name] for name, row in CAPA_KINDS.items() if not row.needs_service_tag]
"""Kinds that a cluster owns by its tag alone, without a Service."""


async def test_every_task_collects_what_it_is_named_for_and_leaves_what_is_not_the_clusters(
    scenario: AwsScenario,
) -> None:
    scenario.document["aws"]["tasks"] = list(TASKS)
    await scenario.aws.behave(nat_gateway_goes=10)
    await scenario.start()
    infra, builder = await scenario.unmanaged("prod"), scenario.builder
    ours, others = by_cloud_provider("prod"), by_cloud_provider("other")
    theirs = await a_few(builder, "prod", infra.vpc)
    doomed, spared = set(theirs.ids), set[str]()
    for tags in (ours, others, {ownership_tag("prod"): "shared"}):
        address = await builder.elastic_ip(tags)
        group = await builder.group(infra.vpc, tags)
        made = [
            address,
            group,
            *[await row.make(builder, infra.vpc, tags, groups=[group], address=address) for row in BY_ONE_TAG],
        ]
        (doomed if tags is ours else spared).update(made)
    # By the AWS Load Balancer Controller, which has a tag of its own.
    for name in ("prod", "other"):
        tags = by_balancer_controller(name)
        group = await builder.group(infra.vpc, tags)
        app = await builder.balancer(infra.vpc, tags, groups=[group])
        target = await builder.target_group(infra.vpc, tags, behind=app)
        (doomed if name == "prod" else spared).update((group, app, target))
    before = await scenario.account_contents()
    await scenario.until_marked(infra)
    await scenario.delete(infra)
    await scenario.until_released(infra)
    after = await scenario.account_contents()
    # A NAT gateway and an endpoint have interfaces, which go with them.
    gone = {id_ for id_ in before.keys() - after.keys() if id_.startswith("eni-")}
    assert spared <= after.keys()
    assert_gone(before, after, doomed | gone)
