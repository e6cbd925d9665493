"""Deletions from events run before the many orphans of a sweep, although they share planners, lanes and quotas."""

from datetime import timedelta
from functools import partial
from typing import Final

import pytest

from service.sources.karpenter_azure import resource_name
from standins.azure import Nic
from tests.scenarios.azure.azure_scenario import TAGS, AzureScenario

pytestmark = pytest.mark.long

ORPHANS: Final = 2_000
FREE: Final = {"capacity": 1_000_000, "rate": 1_000_000}
A_SECOND: Final = 2
"""Interfaces that may go in a second, so that 2,000 of them would take a quarter of an hour."""
MOST_AHEAD: Final = 60
"""Orphans that may go while the event is planned and read: half a minute's worth, for machines with other work. Behind
all that wait, it would be last of hundreds."""


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(300, id="while the orphans are published"),
        pytest.param(1_600, id="when nearly all of them wait"),
    ],
)
async def test_deletions_from_events_run_before_the_orphans_of_a_sweep(
    large_scenario: AzureScenario, told: int
) -> None:
    large_scenario.sweeping(age="0s")
    large_scenario.document["limits"] = {"*": FREE, "*network.writes": {"capacity": 5 * A_SECOND, "rate": A_SECOND}}
    await large_scenario.azure.behave(delete_quotas=False, read_quotas=False)
    names = (resource_name(large_scenario.name(f"{number:04}")) for number in range(ORPHANS))
    await large_scenario.make(Nic(name=name, tags=TAGS, subscription=large_scenario.subscription) for name in names)
    await large_scenario.start()
    claim = large_scenario.name("event")
    uid = await large_scenario.claimed(claim)
    await large_scenario.nic(claim)
    await large_scenario.until("so many orphans wait", partial(_open, large_scenario, told), timedelta(seconds=80))
    before = len(await large_scenario.asked("nic.delete"))
    await large_scenario.unclaimed(claim)
    await large_scenario.until_done(uid, timedelta(seconds=100))
    deletes = [one.name for one in await large_scenario.asked("nic.delete")]
    ahead = deletes.index(resource_name(claim)) - before
    assert ahead < MOST_AHEAD, f"{ahead} of the {told} waiting orphans went before it"


async def _open(scenario: AzureScenario, number: int) -> bool:
    """So many deletions are published, and not done."""
    (shard,) = scenario.installation.shards
    return int(await shard.caller.command("ZCARD", f"{shard.stem}open")) >= number
