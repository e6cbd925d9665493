"""Tagging API that shows new resources late, so that a plan can miss them. The final check comes after the settle time,
which is longer, and finds what was created before that began."""

import pytest

from standins.aws.tags import by_cloud_provider
from tests.scenarios.aws.account_contents import assert_gone
from tests.scenarios.aws.aws_scenario import RATE, AwsScenario
from tests.scenarios.aws.cluster_resources import a_few

pytestmark = pytest.mark.long

SETTLE = 5.0
LAG = 0.5
LISTS = "tagging.GetResources"


async def test_what_was_made_right_before_the_plan_or_right_after_the_removals_is_collected(
    scenario: AwsScenario,
) -> None:
    scenario.document["aws"] |= {"finding": "tagging", "settle": f"{SETTLE}s"}
    await scenario.aws.behave(drain=0, created_unlisted=LAG * RATE)
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    await scenario.until_marked(infra)
    nothing = await scenario.account_contents()

    async def planned() -> bool:
        return len(await scenario.asked(LISTS)) == 1

    # No time passes until there is a plan: what is new stays new.
    await scenario.aws.set_rate(0)
    early = await a_few(scenario.builder, infra.tag, infra.vpc)
    await scenario.delete(infra)
    await scenario.until("the plan's list was made", planned)
    await scenario.aws.set_rate(RATE)
    await scenario.until_gone(*early.ids)
    late = await scenario.builder.group(infra.vpc, by_cloud_provider(infra.tag))
    assert not scenario.is_gone(infra), "it was released before anybody looked again"
    await scenario.until_released(infra)
    assert_gone(nothing, await scenario.account_contents(), ())
    removals = [entry for entry in await scenario.changes() if entry.status == 200]
    assert {*early.ids, late} <= {one for entry in removals for one in entry.ids}
    first, found, *_ = await scenario.asked(LISTS)
    assert min(entry.real for entry in removals) > found.real > first.real + SETTLE, "the plan knew of it"
