"""Objects of a source in observe mode: recorded while they live, published when proven gone, and never by mistake."""

import time

import msgspec
import pytest

from service.contract.names import GC
from service.engine.inventory import end_undeclared_sources
from service.sources.declaration import Unrecognisable
from service.watching.absence import MissingObject, prove_absence
from service.watching.cluster_identity import ConfirmedClient, WrongCluster
from tests.api_servers import TestApi
from tests.integration.watched_source import OTHER, InterceptedClient, WatchedSource, spec_of
from tests.kube import wait_until


async def test_an_observed_object_is_recorded_with_its_annotations_and_gets_no_finalizer(
    watched: WatchedSource,
) -> None:
    marks = {"knell.dev/deletion-policy": "retain", "unrelated": "x"}
    uid = watched.create("one", {"owner": "x"}, annotations=marks, labels={"team": "a"})
    running = await watched.start(mode="observe")
    record = await watched.inventory.get(uid)
    assert record is not None
    assert (record.name, record.namespace, record.data) == ("one", watched.namespace, '{"owner":"x"}')
    assert record.annotations == {"knell.dev/deletion-policy": "retain"}
    assert record.labels == {"team": "a"}
    assert (record.gone, record.held) == (0, "")
    assert watched.finalizers("one") == []
    assert (await watched.facts())["owned." + watched.namespace] == "1"
    watched.patch("one", {"annotations": {"knell.dev/prevent-delete": "true"}})

    async def updated() -> bool:
        found = await watched.inventory.get(uid)
        return found is not None and found.annotations.get("knell.dev/prevent-delete") == "true"

    await watched.until("the new mark is remembered", updated)
    assert running.source.counters.owned == 1


async def test_an_observed_object_that_is_deleted_is_published_and_its_record_stays(watched: WatchedSource) -> None:
    running = await watched.start(mode="observe")
    uid = watched.create("one", {"owner": "x"})
    await watched.until("it is remembered", watched.remembered)
    watched.delete("one")
    found = (await watched.until_published("one"))["one"]
    assert (found.uid, found.data, found.source) == (uid, '{"owner":"x"}', "widgets")
    assert await watched.remembered() == {"one": "gone"}
    record = await watched.inventory.get(uid)
    assert record is not None
    assert record.namespace_annotations == {}
    await watched.until_listed_again(running)
    assert await watched.remembered() == {"one": "gone"}
    await watched.end(found.id)
    await watched.until_listed_again(running)
    assert await watched.remembered() == {}
    assert list(await watched.deletions()) == ["one"]


async def test_the_annotations_of_the_namespace_are_kept_with_a_gone_object(watched: WatchedSource) -> None:
    marks = {"knell.dev/deletion-policy": "retain"}
    watched.kube.patch(f"/api/v1/namespaces/{watched.namespace}", {"metadata": {"annotations": marks}})
    uid = watched.create("one")
    await watched.start(mode="observe")
    watched.delete("one")
    await watched.until_published("one")
    record = await watched.inventory.get(uid)
    assert record is not None
    assert record.namespace_annotations == marks
    assert record.namespace_at > 0


async def test_observed_objects_deleted_while_nothing_watched_are_found_by_the_diff(watched: WatchedSource) -> None:
    names = [f"w{number}" for number in range(8)]
    for name in names:
        watched.create(name)
    first = await watched.start(mode="observe")
    await first.stop()
    for name in names[:5]:
        watched.delete(name)
    watched.create("new")
    await watched.start(mode="observe")
    assert set(await watched.until_published(*names[:5])) == set(names[:5])
    remembered = await watched.remembered()
    assert {name for name, what in remembered.items() if what == "lives"} == {*names[5:], "new"}


async def test_an_object_created_again_under_its_name_counts_as_gone(watched: WatchedSource) -> None:
    old = watched.create("one")
    first = await watched.start(mode="observe")
    await first.stop()
    watched.delete("one")
    new = watched.create("one")
    await watched.start(mode="observe")
    found = await watched.until_published("one")
    assert found["one"].uid == old
    record = await watched.inventory.get(new)
    assert record is not None
    assert not record.gone


async def test_a_namesake_proves_nothing_in_a_cluster_that_is_another_one(watched: WatchedSource) -> None:
    watched.create("one")
    missing = [MissingObject("the-uid-before", watched.namespace, "one")]
    right = ConfirmedClient(watched.cluster, await watched.cluster.identity())
    served = await right.discover(watched.crd.resource)
    assert (await prove_absence(right, served, missing))["the-uid-before"].kind == "gone"
    wrong = ConfirmedClient(watched.cluster, "another-cluster")
    with pytest.raises(WrongCluster):
        await prove_absence(wrong, served, missing)


async def test_a_changed_scope_starts_the_inventory_over_and_publishes_nothing(watched: WatchedSource) -> None:
    watched.create("in", labels={"team": "a"})
    watched.create("out", labels={"team": "b"})
    watched.create("deleted", labels={"team": "b"})
    first = await watched.start(mode="observe")
    await first.stop()
    watched.delete("deleted")
    changed = await watched.start(mode="observe", selector="team=a")
    assert await watched.remembered() == {"in": "lives"}
    await changed.stop()
    await watched.start(mode="observe")
    assert await watched.remembered() == {"in": "lives", "out": "lives"}
    assert await watched.deletions() == {}


@pytest.mark.invariant(7)
async def test_a_changed_list_of_namespaces_publishes_nothing(watched: WatchedSource) -> None:
    watched.create("one")
    first = await watched.start(mode="observe", namespaces=())
    await first.stop()
    watched.delete("one")
    await watched.start(mode="observe")
    assert await watched.remembered() == {}
    assert await watched.deletions() == {}


async def test_a_scope_that_comes_back_publishes_nothing_of_the_time_between(
    watched: WatchedSource, api: TestApi
) -> None:
    other = api.namespace()
    elsewhere = watched.crd.path(other)
    api.kube.create(elsewhere, watched.crd.body("elsewhere"))
    watched.create("here")
    both = (watched.namespace, other)
    for namespaces in (both, (watched.namespace,)):
        running = await watched.start(mode="observe", namespaces=namespaces)
        await running.stop()
    api.kube.delete(f"{elsewhere}/elsewhere")
    await watched.start(mode="observe", namespaces=both)
    assert await watched.remembered() == {"here": "lives"}
    assert await watched.deletions() == {}


async def test_a_renamed_source_publishes_nothing_of_its_old_self(watched: WatchedSource) -> None:
    watched.create("one")
    first = await watched.start(mode="observe")
    await first.stop()
    watched.delete("one")
    await watched.start(mode="observe", name="renamed")
    assert await watched.deletions() == {}
    assert await watched.remembered() == {"one": "lives"}


async def test_a_source_that_was_removed_for_a_while_publishes_nothing_of_that_time(watched: WatchedSource) -> None:
    watched.create("one")
    first = await watched.start(mode="observe")
    await first.stop()
    assert await end_undeclared_sources(watched.installation, ["widgets"]) == []
    assert await end_undeclared_sources(watched.installation, ["others"]) == ["widgets"]
    watched.delete("one")
    await watched.start(mode="observe")
    assert await watched.remembered() == {}
    assert await watched.deletions() == {}


async def test_a_source_that_was_of_another_mode_for_a_while_publishes_nothing_of_that_time(
    watched: WatchedSource,
) -> None:
    watched.create("one")
    for mode in ("observe", "finalizer"):
        running = await watched.start(mode=mode, paused=True)
        await running.stop()
    watched.delete("one")
    await watched.start(mode="observe")
    assert await watched.deletions() == {}


async def test_a_record_of_another_cluster_publishes_nothing(watched: WatchedSource) -> None:
    watched.create("one")
    first = await watched.start(mode="observe", uid="another")
    await first.stop()
    watched.delete("one")
    await watched.start(mode="observe")
    assert await watched.deletions() == {}


async def test_an_object_that_leaves_the_selector_is_forgotten_and_not_published(watched: WatchedSource) -> None:
    watched.create("seen", labels={"team": "a"})
    watched.create("unseen", labels={"team": "a"})
    running = await watched.start(mode="observe", selector="team=a")
    watched.patch("seen", {"labels": {"team": "b"}})

    async def forgotten() -> bool:
        return "seen" not in await watched.remembered()

    await watched.until("it is forgotten", forgotten)
    await running.stop()
    watched.patch("unseen", {"labels": {"team": "b"}})
    await watched.start(mode="observe", selector="team=a")
    assert await watched.remembered() == {}
    assert await watched.deletions() == {}


async def test_opted_out_objects_are_neither_remembered_nor_published(watched: WatchedSource) -> None:
    watched.create("out", annotations={GC: "disabled"})
    watched.create("leaves")
    watched.create("stays")
    await watched.start(mode="observe")
    watched.patch("leaves", {"annotations": {GC: "disabled"}})

    async def only_one() -> bool:
        return await watched.remembered() == {"stays": "lives"}

    await watched.until("they are forgotten", only_one)
    for name in ("out", "leaves", "stays"):
        watched.delete(name)
    assert set(await watched.until_published("stays")) == {"stays"}


async def test_an_annotation_with_an_unknown_value_keeps_the_record(watched: WatchedSource) -> None:
    uid = watched.create("one", annotations={GC: "perhaps"})
    await watched.start(mode="observe")
    watched.delete("one")
    await watched.until_published("one")
    record = await watched.inventory.get(uid)
    assert record is not None
    assert record.annotations == {GC: "perhaps"}


async def test_observed_objects_older_than_the_source_are_left_alone(watched: WatchedSource) -> None:
    watched.create("old")
    watched.create("chosen", annotations={GC: "enabled"})
    await watched.start(mode="observe", enabled_at=int(time.time() * 1000) + 60_000)
    assert await watched.remembered() == {"chosen": "lives"}
    watched.delete("old")
    watched.delete("chosen")
    assert set(await watched.until_published("chosen")) == {"chosen"}


@pytest.mark.invariant(5)
async def test_a_restored_etcd_holds_missing_objects_until_an_operator_accepts_it(watched: WatchedSource) -> None:
    watched.create("one")
    watched.create("two")
    first = await watched.start(mode="observe")
    await first.stop()
    field = f"resource_version@{watched.namespace}"
    await watched.inventory.save_state({field: int((await watched.facts())[field]) + 1_000_000})
    watched.delete("one")
    running = await watched.start(mode="observe")
    remembered = await watched.remembered()
    assert "restored from a backup" in remembered["one"]
    assert remembered["two"] == "lives"
    assert running.source.counters.held == 1
    facts = await watched.facts()
    assert facts[f"held@{watched.namespace}"] == "1"
    assert "restored from a backup" in facts[f"held_why@{watched.namespace}"]
    # What comes later is believed again; what is held stays so.
    watched.delete("two")
    await watched.until_published("two")
    await watched.until_listed_again(running)
    assert set(await watched.deletions()) == {"two"}
    assert await watched.inventory.release_held() == 1
    await watched.until_published("one")

    async def nothing_held() -> bool:
        return f"held@{watched.namespace}" not in await watched.facts()

    await watched.until("nothing is shown as held", nothing_held)


async def test_what_was_held_can_be_dropped(watched: WatchedSource) -> None:
    watched.create("one")
    first = await watched.start(mode="observe")
    await first.stop()
    await watched.inventory.save_state({f"resource_version@{watched.namespace}": 10**12})
    watched.delete("one")
    running = await watched.start(mode="observe")
    assert "restored" in (await watched.remembered())["one"]
    assert await watched.inventory.drop_held() == 1
    await watched.until_listed_again(running)
    assert await watched.remembered() == {}
    assert await watched.deletions() == {}


@pytest.mark.long  # a CRD goes at its own pace
async def test_a_crd_deleted_with_its_objects_holds_them_also_when_it_comes_back(watched: WatchedSource) -> None:
    names = [f"w{number}" for number in range(5)]
    for name in names:
        watched.create(name)
    running = await watched.start(mode="observe")
    watched.kube.delete(watched.crd.own_path)

    async def in_trouble() -> bool:
        return "not served" in running.source.problem

    await watched.until("the source is in trouble", in_trouble)
    assert await watched.deletions() == {}
    wait_until("the CRD is gone", lambda: watched.kube.get(watched.crd.own_path) is None)
    watched.kube.install(watched.crd)
    watched.create("new")

    async def back() -> bool:
        return running.source.problem == "" and (await watched.remembered()).get("new") == "lives"

    await watched.until("it is watched again", back)
    remembered = await watched.remembered()
    assert {name for name, what in remembered.items() if "CRD" in what or "served" in what} == set(names)
    assert await watched.deletions() == {}


@pytest.mark.long  # a CRD goes at its own pace
async def test_what_a_crd_on_its_way_out_took_along_is_held(watched: WatchedSource) -> None:
    kept = watched.kube.get(watched.crd.own_path)
    assert kept is not None
    watched.kube.patch(
        watched.crd.own_path, {"metadata": {"finalizers": [*kept["metadata"].get("finalizers", []), OTHER]}}
    )
    watched.create("one")
    watched.create("two")
    running = await watched.start(mode="observe")
    # It is still there when its objects are gone already, and asked for one of them the server says 404.
    watched.kube.delete(watched.crd.own_path)
    await watched.until("both are held", lambda: running.source.counters.held == 2)
    why = await watched.remembered()
    assert all("is being deleted" in reason for reason in why.values())
    assert await watched.deletions() == {}
    await running.stop()
    watched.kube.patch(watched.crd.own_path, {"metadata": {"finalizers": []}})


@pytest.mark.long  # a CRD goes at its own pace
async def test_a_crd_replaced_while_nothing_watched_holds_its_objects(watched: WatchedSource) -> None:
    watched.create("one")
    first = await watched.start(mode="observe")
    await first.stop()
    watched.replace_crd()
    await watched.start(mode="observe")
    assert "installed again" in (await watched.remembered())["one"]
    assert await watched.deletions() == {}
    assert await watched.inventory.release_held() == 1
    await watched.until_published("one")


@pytest.mark.long  # a CRD goes at its own pace
async def test_a_crd_replaced_while_deletions_are_proven_holds_its_objects(watched: WatchedSource) -> None:
    for name in ("one", "two", "three"):
        watched.create(name)
    replaced: list[str] = []

    def meddle(method: str, name: str) -> None:
        if method == "GET" and not replaced:
            replaced.append(name)
            watched.replace_crd()

    running = await watched.start(mode="observe", cluster=InterceptedClient(watched.cluster, watched.crd, meddle))
    watched.delete("one")
    # Asked for it the server says 404, and the CRD is established; but it is another one, which took all of them along.
    await watched.until("all are held", lambda: running.source.counters.held == 3)
    assert replaced == ["one"]
    assert all("installed again" in why for why in (await watched.remembered()).values())
    assert await watched.deletions() == {}
    # What lives under the new one is watched as before.
    watched.create("new")

    async def known() -> bool:
        return (await watched.remembered()).get("new") == "lives"

    await watched.until("it is known", known)
    watched.delete("new")
    assert set(await watched.until_published("new")) == {"new"}


@pytest.mark.long  # a CRD goes at its own pace
async def test_a_crd_replaced_during_the_diff_holds_its_objects(watched: WatchedSource) -> None:
    for name in ("one", "two", "three"):
        watched.create(name)
    first = await watched.start(mode="observe")
    await first.stop()
    watched.delete("one")
    replaced: list[str] = []

    def meddle(method: str, name: str) -> None:
        if method == "GET" and not replaced:
            replaced.append(name)
            watched.replace_crd()

    running = await watched.start(mode="observe", cluster=InterceptedClient(watched.cluster, watched.crd, meddle))
    assert replaced == ["one"]
    assert "installed again" in (await watched.remembered())["one"]
    await watched.until_listed_again(running)
    assert all("installed again" in why for why in (await watched.remembered()).values())
    assert running.source.counters.held == 3
    assert await watched.deletions() == {}


async def test_a_crash_between_the_record_and_the_event_is_made_good_by_the_next_list(watched: WatchedSource) -> None:
    uid = watched.create("one")
    first = await watched.start(mode="observe")
    await first.stop()
    watched.delete("one")
    record = await watched.inventory.get(uid)
    assert record is not None
    await watched.inventory.save({uid: msgspec.structs.replace(record, gone=1, at=1)})
    await watched.start(mode="observe")
    await watched.until_published("one")


async def test_the_recorded_data_of_an_object_is_kept_when_it_becomes_unrecognisable(watched: WatchedSource) -> None:
    def recognise(raw: bytes) -> str:
        if b"broken" in raw:
            raise Unrecognisable("the spec is broken")
        return spec_of(raw)

    uid = watched.create("one", {"owner": "x"})
    running = await watched.start(mode="observe", recognise=recognise)
    watched.kube.patch(watched.crd.path(watched.namespace, "one"), {"spec": {"broken": "yes"}})

    async def faulty() -> bool:
        record = await watched.inventory.get(uid)
        return record is not None and record.fault == "the spec is broken"

    await watched.until("its fault is remembered", faulty)
    record = await watched.inventory.get(uid)
    assert record is not None
    assert record.data == '{"owner":"x"}'
    assert running.source.counters.unreadable >= 1


async def test_a_record_that_can_t_be_read_is_kept_and_counted(watched: WatchedSource) -> None:
    watched.create("one")
    key = watched.inventory.records_key
    await watched.installation.caller.command("HSET", key, "some-uid", b"\xff no record")
    running = await watched.start(mode="observe")
    assert running.source.counters.unreadable == 1
    assert await watched.installation.caller.command("HEXISTS", key, "some-uid")
    assert await watched.deletions() == {}


@pytest.mark.parametrize("parts", [2, 3])
async def test_shares_divide_the_objects_and_find_each_other_s_deletions(watched: WatchedSource, parts: int) -> None:
    names = [f"w{number}" for number in range(4)]
    for name in names:
        watched.create(name)

    def share(part: int) -> dict[str, object]:
        home = len(watched.namespace) % parts
        return {"share": lambda namespace: part == (home if namespace else 0), "part": f"{part + 1}/{parts}"}

    whole = await watched.start(mode="observe", namespaces=())
    await whole.stop()
    watched.delete("w0")
    runs = [await watched.start(mode="observe", namespaces=(), **share(part)) for part in range(parts)]  # type: ignore[arg-type]
    assert set(await watched.until_published("w0")) == {"w0"}
    watched.delete("w1")
    assert set(await watched.until_published("w0", "w1")) == {"w0", "w1"}
    await watched.until("both are counted", lambda: sum(run.source.counters.published for run in runs) == 2)
    assert max(run.source.counters.published for run in runs) == 2
