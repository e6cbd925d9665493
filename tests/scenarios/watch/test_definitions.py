"""The kinds themselves come, go and change while the service watches."""

import uuid
from dataclasses import replace
from typing import Any

import pytest

from service.engine.inventory import Inventory
from tests.kube import Crd
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import VMS, finalizers, is_going
from tests.scenarios.watch.service import Service
from tests.scenarios.watch.world import World

pytestmark = pytest.mark.long


def fresh(name: str = "things", **how: Any) -> Crd:
    return Crd(group="knell.test", plural=f"{name}{uuid.uuid4().hex[:8]}s", **how)


async def test_a_kind_that_is_installed_later_is_watched_from_then_on(world: World) -> None:
    late = fresh()
    world.document["sources"]["late"] = world.source(late)
    service = await world.start(VMS)
    await service.until("it is reported", lambda: "not" in service.post("late").trouble)
    assert late.resource in service.post("late").trouble
    vms = await world.many("vm", 3)
    await world.ready(*vms)
    await world.delete(*vms)
    await until_released(world, *vms)
    await world.admin.install(late)
    try:
        await service.until("it is well", lambda: service.post("late").trouble == "")
        things = await world.many("thing", 3, source="late", crd=late)
        await world.ready(*things)
        await world.delete(*things[:2])
        await until_released(world, *things[:2])
        await service.stop()
        await assert_story(world, [*vms, *things[:2]])
    finally:
        await _remove(world, late)


async def test_a_kind_that_is_deleted_with_its_objects_holds_them_and_nothing_is_removed(world: World) -> None:
    marked, observed = fresh("marked"), fresh("observed")
    await world.admin.install(marked)
    await world.admin.install(observed)
    world.document["sources"] |= {
        "marked": world.source(marked),
        "observed": world.source(observed, mode="observe"),
    }
    service = await world.start()
    ours = await world.many("ours", 4, source="marked", crd=marked)
    seen = await world.many("seen", 4, source="observed", crd=observed)
    vms = await world.many("vm", 3)
    await world.ready(*ours, *seen, *vms)
    for crd in (marked, observed):
        await world.admin.delete(crd.own_path)
    await service.until("those with our finalizer are held", lambda: service.post("marked").tally.held == 4)
    # Those that were only observed are gone from the cluster, with what could say that they were deleted.
    await world.until("the observed kind is gone", lambda: _gone(world, observed))
    await service.until("it is told", lambda: service.post("observed").tally.held == 4 or _troubled(service, observed))
    live = await world.live([marked])
    assert all(is_going(live[name]) and finalizers(live[name]) for name in ours)
    # Everything else goes on.
    await world.delete(*vms)
    await until_released(world, *vms)
    facts = await Inventory(world.installation, "marked").facts()
    assert "is being deleted" in facts[f"held_why@{world.namespace}"]
    # Installed again it is another kind, and its list says nothing about the old objects.
    await world.admin.install(observed)
    await service.until("the observed ones are held", lambda: service.post("observed").tally.held == 4)
    records = await Inventory(world.installation, "observed").recall([world.made[name].uid for name in seen])
    assert all(record.held for record in records.values())
    assert len(records) == len(seen)
    # Another hand lets the objects go, so that the kind goes too; that is no consent either.
    await _remove(world, marked)
    await _remove(world, observed)
    await service.stop()
    await assert_story(world, vms, left=[*ours, *seen])


async def test_a_kind_whose_served_version_changes_is_watched_in_the_new_one(world: World) -> None:
    old = fresh()
    new = Crd(group=old.group, plural=old.plural, versions=("v2",))
    seen = fresh("seen")
    newer = Crd(group=seen.group, plural=seen.plural, versions=("v2",))
    await world.admin.install(old)
    await world.admin.install(seen)
    world.document["sources"] |= {"things": world.source(old), "seen": world.source(seen, mode="observe")}
    service = await world.start()
    try:
        things = await world.many("thing", 6, source="things", crd=old)
        parts = await world.many("part", 4, source="seen", crd=seen)
        await world.ready(*things, *parts)
        for before, after in ((old, new), (seen, newer)):
            await _change_version(world, before, after)
        # What was made in the old version lives on, and is known by its uid.
        for name in (*things, *parts):
            moved = new if name in things else newer
            world.made[name] = replace(world.made[name], crd=moved)
        assert len(await world.live()) == 10
        early = [*things[4:], *parts[2:]]
        await world.delete(*early)
        fresh_things = await world.many("later", 3, source="things", crd=new)
        fresh_parts = await world.many("extra", 3, source="seen", crd=newer)
        await world.ready(*fresh_things, *fresh_parts)
        going = [*things[:4], *parts[:2], *fresh_things[:2], *fresh_parts[:2]]
        await world.delete(*going)
        going += early
        await until_released(world, *going)
        assert service.post("things").trouble == service.post("seen").trouble == ""
        await service.stop()
        await assert_story(world, going)
    finally:
        await _remove(world, new)
        await _remove(world, newer)


async def _change_version(world: World, old: Crd, new: Crd) -> None:
    """v1 is no longer served, v2 is, and what was stored stays."""
    (served,) = new.definition()["spec"]["versions"]  # type: ignore[index]
    (before,) = old.definition()["spec"]["versions"]  # type: ignore[index]
    versions = [{**before, "storage": False}, served]
    await world.admin.patch(old.own_path, {"spec": {"versions": versions}})

    async def serves() -> bool:
        return (await world.admin.request("GET", new.path())).status == 200

    await world.until("the new version is served", serves)
    versions[0]["served"] = False
    await world.admin.patch(old.own_path, {"spec": {"versions": versions}})


async def _remove(world: World, crd: Crd) -> None:
    """With all its objects, whoever holds them back."""
    for item in await world.admin.items(crd.path()):
        meta = item["metadata"]
        path = crd.path(meta.get("namespace", ""), meta["name"])
        await world.admin.request("PATCH", path, {"metadata": {"finalizers": None}}, patch="merge")
    await world.admin.request("DELETE", crd.own_path)
    await world.until(f"{crd.resource} is gone", lambda: _gone(world, crd))


async def _gone(world: World, crd: Crd) -> bool:
    return await world.admin.get(crd.own_path) is None


def _troubled(service: Service, crd: Crd) -> bool:
    return crd.resource in service.post("observed").trouble
