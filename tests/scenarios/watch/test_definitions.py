"""CustomResourceDefinitions that are created, deleted and changed while the service watches."""

import uuid
from dataclasses import replace
from typing import Any

import pytest

from service.engine.inventory import Inventory
from tests.kube import Crd
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import VMS, finalizers, is_going
from tests.scenarios.watch.service import Service
from tests.scenarios.watch.watch_scenario import WatchScenario

pytestmark = pytest.mark.long


def fresh(name: str = "things", **how: Any) -> Crd:
    return Crd(group="knell.test", plural=f"{name}{uuid.uuid4().hex[:8]}s", **how)


async def test_a_kind_that_is_installed_later_is_watched_from_then_on(scenario: WatchScenario) -> None:
    late = fresh()
    scenario.document["sources"]["late"] = scenario.source(late)
    service = await scenario.start(VMS)
    await service.until("it is reported", lambda: "not" in service.share_lease("late").current_problem)
    assert late.resource in service.share_lease("late").current_problem
    vms = await scenario.many("vm", 3)
    await scenario.ready(*vms)
    await scenario.delete(*vms)
    await until_released(scenario, *vms)
    await scenario.admin.install(late)
    try:
        await service.until("it is well", lambda: service.share_lease("late").current_problem == "")
        things = await scenario.many("thing", 3, source="late", crd=late)
        await scenario.ready(*things)
        await scenario.delete(*things[:2])
        await until_released(scenario, *things[:2])
        await service.stop()
        await assert_story(scenario, [*vms, *things[:2]])
    finally:
        await _remove(scenario, late)


async def test_a_kind_that_is_deleted_with_its_objects_holds_them_and_nothing_is_removed(
    scenario: WatchScenario,
) -> None:
    marked, observed = fresh("marked"), fresh("observed")
    await scenario.admin.install(marked)
    await scenario.admin.install(observed)
    scenario.document["sources"] |= {
        "marked": scenario.source(marked),
        "observed": scenario.source(observed, mode="observe"),
    }
    service = await scenario.start()
    ours = await scenario.many("ours", 4, source="marked", crd=marked)
    seen = await scenario.many("seen", 4, source="observed", crd=observed)
    vms = await scenario.many("vm", 3)
    await scenario.ready(*ours, *seen, *vms)
    for crd in (marked, observed):
        await scenario.admin.delete(crd.own_path)
    await service.until("those with our finalizer are held", lambda: service.share_lease("marked").counters.held == 4)
    # Those that were only observed are gone from the cluster, with what could say that they were deleted.
    await scenario.until("the observed kind is gone", lambda: _gone(scenario, observed))
    await service.until(
        "it is reported", lambda: service.share_lease("observed").counters.held == 4 or _troubled(service, observed)
    )
    live = await scenario.live([marked])
    assert all(is_going(live[name]) and finalizers(live[name]) for name in ours)
    # Everything else goes on.
    await scenario.delete(*vms)
    await until_released(scenario, *vms)
    facts = await Inventory(scenario.installation, "marked").state()
    assert "is being deleted" in facts[f"held_why@{scenario.namespace}"]
    # Installed again it is another kind, and its list says nothing about the old objects.
    await scenario.admin.install(observed)
    await service.until("the observed ones are held", lambda: service.share_lease("observed").counters.held == 4)
    records = await Inventory(scenario.installation, "observed").get_many([scenario.made[name].uid for name in seen])
    assert all(record.held for record in records.values())
    assert len(records) == len(seen)
    # Another hand lets the objects go, so that the kind goes too; that is no consent either.
    await _remove(scenario, marked)
    await _remove(scenario, observed)
    await service.stop()
    await assert_story(scenario, vms, left=[*ours, *seen])


async def test_a_kind_whose_served_version_changes_is_watched_in_the_new_one(scenario: WatchScenario) -> None:
    old = fresh()
    new = Crd(group=old.group, plural=old.plural, versions=("v2",))
    seen = fresh("seen")
    newer = Crd(group=seen.group, plural=seen.plural, versions=("v2",))
    await scenario.admin.install(old)
    await scenario.admin.install(seen)
    scenario.document["sources"] |= {"things": scenario.source(old), "seen": scenario.source(seen, mode="observe")}
    service = await scenario.start()
    try:
        things = await scenario.many("thing", 6, source="things", crd=old)
        parts = await scenario.many("part", 4, source="seen", crd=seen)
        await scenario.ready(*things, *parts)
        for before, after in ((old, new), (seen, newer)):
            await _change_version(scenario, before, after)
        # What was made in the old version lives on, and is known by its uid.
        for name in (*things, *parts):
            moved = new if name in things else newer
            scenario.made[name] = replace(scenario.made[name], crd=moved)
        assert len(await scenario.live()) == 10
        early = [*things[4:], *parts[2:]]
        await scenario.delete(*early)
        fresh_things = await scenario.many("later", 3, source="things", crd=new)
        fresh_parts = await scenario.many("extra", 3, source="seen", crd=newer)
        await scenario.ready(*fresh_things, *fresh_parts)
        going = [*things[:4], *parts[:2], *fresh_things[:2], *fresh_parts[:2]]
        await scenario.delete(*going)
        going += early
        await until_released(scenario, *going)
        assert service.share_lease("things").current_problem == service.share_lease("seen").current_problem == ""
        await service.stop()
        await assert_story(scenario, going)
    finally:
        await _remove(scenario, new)
        await _remove(scenario, newer)


async def _change_version(scenario: WatchScenario, old: Crd, new: Crd) -> None:
    """v1 is no longer served, v2 is, and what was stored stays."""
    (served,) = new.definition()["spec"]["versions"]  # type: ignore[index]
    (before,) = old.definition()["spec"]["versions"]  # type: ignore[index]
    versions = [{**before, "storage": False}, served]
    await scenario.admin.patch(old.own_path, {"spec": {"versions": versions}})

    async def serves() -> bool:
        return (await scenario.admin.request("GET", new.path())).status == 200

    await scenario.until("the new version is served", serves)
    versions[0]["served"] = False
    await scenario.admin.patch(old.own_path, {"spec": {"versions": versions}})


async def _remove(scenario: WatchScenario, crd: Crd) -> None:
    """With all its objects, whoever holds them back."""
    for item in await scenario.admin.items(crd.path()):
        meta = item["metadata"]
        path = crd.path(meta.get("namespace", ""), meta["name"])
        await scenario.admin.request("PATCH", path, {"metadata": {"finalizers": None}}, patch="merge")
    await scenario.admin.request("DELETE", crd.own_path)
    await scenario.until(f"{crd.resource} is gone", lambda: _gone(scenario, crd))


async def _gone(scenario: WatchScenario, crd: Crd) -> bool:
    return await scenario.admin.get(crd.own_path) is None


def _troubled(service: Service, crd: Crd) -> bool:
    return crd.resource in service.share_lease("observed").current_problem
