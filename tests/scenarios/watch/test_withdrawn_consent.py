"""Finalizer removed by another client while jobs are open: that withdraws consent, and nothing more is deleted."""

import pytest

from tests.scenarios.watch.evidence import assert_story
from tests.scenarios.watch.objects import ACCOUNT
from tests.scenarios.watch.watch_scenario import WatchScenario
from tests.simulated import Seed, SeededResource

pytestmark = pytest.mark.long

BLOCKER = "in-the-way"


async def test_a_finalizer_removed_by_someone_else_cancels_open_jobs(scenario: WatchScenario) -> None:
    """The first resource is gone, the second is in use, the third has not had its turn."""
    scenario.provider.state.add(Seed(resources=(SeededResource(account=ACCOUNT, id=BLOCKER, owner="somebody"),)))
    blocked = SeededResource(account=ACCOUNT, id="vm-1", owner="tag-vm", blocked_by=(BLOCKER,))
    service = await scenario.start()
    await scenario.make("vm", targets=3, stages=True, resources=[blocked])
    await scenario.make("unclear", annotations={"knell.dev/deletion-policy": "perhaps"})
    await scenario.many("stays", 2)
    await scenario.ready(*scenario.made)
    await scenario.delete("vm", "unclear")

    async def in_use() -> bool:
        return any(line.id == "vm-1" and line.status == 409 for line in scenario.calls())

    await scenario.until("the second resource is in use", in_use)
    await scenario.until("the other is held", lambda: _state(scenario, "unclear", "held"))
    for name in ("vm", "unclear"):
        await scenario.admin.patch(scenario.made[name].path, {"metadata": {"finalizers": None}})
    assert await scenario.read("vm") is None
    await scenario.until("what was open is closed", lambda: _state(scenario, "vm", "done"))
    await scenario.until("what was held is dropped", lambda: _state(scenario, "unclear", "dropped"))
    # The way is free now, and nobody goes it.
    del scenario.provider.state.existing[ACCOUNT, BLOCKER]
    view = (await scenario.deletions())[scenario.deletion_of("vm")]
    assert view.left == 0
    assert "finalizer" in view.withdrawn
    decisions = [entry["id"] for entry in await scenario.decisions("withdrawn")]
    assert sorted(decisions) == sorted(scenario.deletion_of(name) for name in ("vm", "unclear"))
    await service.stop()
    await assert_story(
        scenario, [], left=["vm", "unclear"], gone=["vm-0"], tried=["vm-1"],
        others={scenario.deletion_of("vm"): "done", scenario.deletion_of("unclear"): "dropped"},
    )  # fmt: skip
    assert scenario.there("vm-1")
    assert scenario.there("vm-2")


async def _state(scenario: WatchScenario, name: str, state: str) -> bool:
    found = (await scenario.deletions()).get(scenario.deletion_of(name))
    return found is not None and found.state == state
