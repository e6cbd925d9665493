"""Events that the service did not publish, or that are wrong: they are hints, and the state of the cluster decides."""

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from service.contract import Event
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import DISKS
from tests.scenarios.watch.watch_scenario import WatchScenario

pytestmark = pytest.mark.long


def _event(scenario: WatchScenario, name: str, /, **changed: Any) -> Event:
    """What the watch side would publish of that object."""
    made = scenario.made[name]
    true = {
        "cluster": scenario.cluster, "resource": made.crd.resource, "uid": made.uid, "name": name,
        "namespace": made.namespace, "source": made.source,
    }  # fmt: skip
    return Event(**{**true, **changed})


async def _by_hand(scenario: WatchScenario, events: Sequence[Event]) -> None:
    """As anybody could who reaches Redis."""
    client: Any = scenario.installation.connections.client
    for event in events:
        await client.xadd(scenario.installation.keys.of(0, "events"), event.fields())


async def test_forged_events_are_held_with_the_reason_and_touch_nothing(scenario: WatchScenario) -> None:
    service = await scenario.start()
    vms, disks = await scenario.many("vm", 3), await scenario.many("disk", 3, source=DISKS)
    await scenario.ready(*vms, *disks)
    before = {name: item["metadata"]["resourceVersion"] for name, item in (await scenario.live()).items()}
    forged = {
        "there is no": _event(scenario, vms[0], name="ghost", uid=str(uuid.uuid4())),
        "lives: it has no deletionTimestamp": _event(scenario, vms[0]),
        "the one with uid": _event(scenario, vms[0], uid=str(uuid.uuid4())),
        "holds no object with uid": _event(scenario, disks[0], uid=str(uuid.uuid4())),
        "is still there": _event(scenario, disks[0]),
        "and this is about cluster": _event(scenario, vms[1], cluster=str(uuid.uuid4())),
        "is about": _event(scenario, vms[1], resource=scenario.crds[DISKS].resource, uid=scenario.made[disks[1]].uid),
    }
    events = list(forged.values())
    await _by_hand(scenario, events[::2])
    await scenario.installation.publish(events[1::2])

    async def all_held() -> bool:
        found = await scenario.deletions()
        return all(
            one.deletion in found and found[one.deletion].state == "held" and words in found[one.deletion].held_why
            for words, one in forged.items()
        )

    await scenario.until("all are held, each with its reason", all_held)
    # Again, and the other way: what is held is held.
    await _by_hand(scenario, events[1::2])
    await scenario.installation.publish(events[::2])
    await scenario.until("they are held again", all_held)
    after = {name: item["metadata"]["resourceVersion"] for name, item in (await scenario.live()).items()}
    assert after == before
    assert scenario.calls() == []
    # A forged event is not in the way of a true one.
    await scenario.delete(vms[0], disks[0])
    await until_released(scenario, vms[0], disks[0])
    await service.stop()
    true = {scenario.deletion_of(name) for name in (vms[0], disks[0])}
    held = {one.deletion: "held" for one in events if one.deletion not in true}
    await assert_story(scenario, [vms[0], disks[0]], others=held)
