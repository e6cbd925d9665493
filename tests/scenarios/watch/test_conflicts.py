"""Another client that writes the same objects constantly: our finalizer is added and removed, and its changes stay."""

import asyncio
import itertools
from typing import Any

import pytest

from service.contract.names import FINALIZER
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import VMS, finalizers, is_going
from tests.scenarios.watch.watch_scenario import WatchScenario

pytestmark = pytest.mark.long

HOLDS = "someone.else/holds"
FLIPS = "someone.else/flips"


class ConflictingWriter:
    """Changes labels, annotations and finalizers of its own, over and over, each time on what it has just read."""

    def __init__(self, scenario: WatchScenario, names: list[str]) -> None:
        self._scenario, self._names = scenario, names
        self.wrote: set[str] = set()
        """Versions of objects that it made."""
        self.conflicts = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name in self._names:
                group.create_task(self._meddle(name))

    async def _meddle(self, name: str) -> None:
        for number in itertools.count():
            found = await self._scenario.read(name)
            if found is None:
                return
            meta = found["metadata"]
            theirs = finalizers(found)
            # The server refuses new finalizers on an object in deletion.
            if FLIPS in theirs:
                theirs.remove(FLIPS)
            elif not is_going(found):
                theirs.insert(number % 2, FLIPS)
            meta["labels"] = {**meta.get("labels", {}), "turn": str(number)}
            meta["annotations"] = {**meta.get("annotations", {}), "someone.else/turn": str(number)}
            meta["finalizers"] = theirs
            answer = await self._scenario.admin.request("PUT", self._scenario.made[name].path, found)
            if answer.status == 409:
                self.conflicts += 1
            elif answer.status == 200:
                self.wrote.add(answer.body["metadata"]["resourceVersion"])
            else:
                assert answer.status == 404


async def test_an_object_that_another_client_writes_all_the_time_is_marked_and_released(
    scenario: WatchScenario,
) -> None:
    service = await scenario.start()
    names = await scenario.many("vm", 8, finalizers=[HOLDS])
    bystander = await scenario.make("stays", finalizers=[HOLDS])
    listed: Any = await scenario.admin.get(scenario.crds[VMS].path(scenario.namespace))
    start = listed["metadata"]["resourceVersion"]
    history: list[Any] = []

    async def record() -> None:
        async for event in scenario.admin.changes(scenario.crds[VMS].path(scenario.namespace), start):
            # One by one: this is cancelled.
            history.append(event)  # noqa: PERF401

    meddler = ConflictingWriter(scenario, names)
    tasks = [asyncio.create_task(record()), asyncio.create_task(meddler.run())]
    try:
        await scenario.until_marked(*names, *bystander)
        await scenario.delete(*names)

        async def only_theirs() -> bool:
            live = await scenario.live()
            return all(FINALIZER not in finalizers(live[name]) for name in names)

        await scenario.until("ours is off everywhere", only_theirs)
        await scenario.until("their deletions are done", lambda: _done(scenario, names))
        assert all(HOLDS in finalizers(item) for item in (await scenario.live()).values())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    # Now the other client removes its own.
    for name in names:
        await scenario.admin.patch(scenario.made[name].path, {"metadata": {"finalizers": None}})
    await until_released(scenario, *names)
    await service.stop()
    assert meddler.conflicts > 0, "there was no conflict"
    assert _touched_by_others(history, meddler.wrote) == []
    assert HOLDS in finalizers((await scenario.live())["stays"])
    await assert_story(scenario, names)


def _touched_by_others(history: list[Any], wrote: set[str]) -> list[str]:
    """Changes of finalizers that are not ours, made by a client that does not own them."""
    before: dict[str, list[str]] = {}
    found = []
    for event in history:
        meta = event["object"]["metadata"]
        theirs = [one for one in meta.get("finalizers", []) if one != FINALIZER]
        if before.get(meta["uid"], theirs) != theirs and meta["resourceVersion"] not in wrote:
            found.append(f"{meta['name']} at {meta['resourceVersion']}: {before[meta['uid']]} became {theirs}")
        before[meta["uid"]] = theirs
    return found


async def _done(scenario: WatchScenario, names: list[str]) -> bool:
    return set(names) <= await scenario.done()
