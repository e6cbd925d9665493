"""The tagging API shows what is new only after a while, so that a plan can miss it. The last look comes after the
settle time, which is longer: it finds what was made before that began."""

import pytest

from standins.aws.tags import by_cloud_provider
from tests.scenarios.aws.belongings import a_few
from tests.scenarios.aws.holdings import assert_gone
from tests.scenarios.aws.stage import RATE, Stage

pytestmark = pytest.mark.long

SETTLE = 5.0
LAG = 0.5
LISTS = "tagging.GetResources"


async def test_what_was_made_right_before_the_plan_or_right_after_the_removals_is_collected(stage: Stage) -> None:
    stage.document["aws"] |= {"finding": "tagging", "settle": f"{SETTLE}s"}
    await stage.aws.behave(drain=0, unlisted=LAG * RATE)
    await stage.start()
    infra = await stage.unmanaged("prod")
    await stage.until_marked(infra)
    nothing = await stage.holdings()

    async def planned() -> bool:
        return len(await stage.asked(LISTS)) == 1

    # No time passes until there is a plan: what is new stays new.
    await stage.aws.set_rate(0)
    early = await a_few(stage.world, infra.tag, infra.vpc)
    await stage.delete(infra)
    await stage.until("the plan's list was made", planned)
    await stage.aws.set_rate(RATE)
    await stage.until_gone(*early.ids)
    late = await stage.world.group(infra.vpc, by_cloud_provider(infra.tag))
    assert not stage.is_gone(infra), "it was released before anybody looked again"
    await stage.until_released(infra)
    assert_gone(nothing, await stage.holdings(), ())
    removals = [entry for entry in await stage.changes() if entry.status == 200]
    assert {*early.ids, late} <= {one for entry in removals for one in entry.ids}
    first, found, *_ = await stage.asked(LISTS)
    assert min(entry.real for entry in removals) > found.real > first.real + SETTLE, "the plan knew of it"
