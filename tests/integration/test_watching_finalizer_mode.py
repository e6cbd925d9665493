"""Objects of a source in finalizer mode: they get the finalizer while they live, and their deletion is published."""

from collections import Counter
from datetime import datetime, timedelta

import msgspec
import pytest

from service.contract import Event
from service.contract.names import DRY_RUN, FINALIZER, GC
from service.engine.script_arguments import UnplannedEvent, event_fields
from service.settings import PolicySettings, SourceSettings
from service.sources.capa import AWS_FINALIZER
from service.watching import finalizer_queue
from service.watching.source_status import MISSED
from tests.api_servers import TestApi
from tests.integration.watched_source import OTHER, QUICK, InterceptedClient, RunningWatch, WatchedSource


async def test_a_live_object_gets_our_finalizer_and_keeps_the_others(watched: WatchedSource) -> None:
    watched.create("before", finalizers=[OTHER])
    running = await watched.start()
    watched.create("after")
    await watched.until("both are marked", lambda: watched.marked("before") and watched.marked("after"))
    assert watched.finalizers("before") == [OTHER, FINALIZER]
    await watched.until("both are counted", lambda: running.source.counters.marked == 2)
    assert running.source.problem == ""


async def test_a_going_object_with_our_finalizer_is_published_with_what_recognises_it(watched: WatchedSource) -> None:
    await watched.start()
    uid = watched.create("one", {"owner": "x"})
    await watched.until("it is marked", lambda: watched.marked("one"))
    watched.delete("one")
    (found,) = (await watched.until_published("one")).values()
    assert (found.uid, found.namespace, found.resource) == (uid, watched.namespace, watched.crd.resource)
    assert (found.source, found.data, found.reason) == ("widgets", '{"owner":"x"}', "deleted")
    assert found.cluster == await watched.cluster.identity()
    stamp = watched.get("one")["metadata"]["deletionTimestamp"]
    assert found.object_at is not None
    assert found.object_at.strftime("%Y-%m-%dT%H:%M:%SZ") == stamp


async def test_an_object_that_was_deleted_while_nothing_watched_is_found_by_the_list(watched: WatchedSource) -> None:
    first = await watched.start()
    watched.create("one")
    await watched.until("it is marked", lambda: watched.marked("one"))
    await first.stop()
    watched.delete("one")
    await watched.start()
    assert set(await watched.until_published("one")) == {"one"}


async def test_an_object_with_the_finalizer_of_another_collector_alone_is_not_published_as_ours(
    watched: WatchedSource,
) -> None:
    watched.create("theirs", finalizers=[AWS_FINALIZER])
    watched.create("ours", finalizers=[FINALIZER])
    watched.delete("theirs")
    watched.delete("ours")
    await watched.start()
    assert set(await watched.until_published("ours")) == {"ours"}
    assert set(await watched.deletions()) == {"ours"}


async def test_two_runs_at_once_record_one_deletion(watched: WatchedSource) -> None:
    await watched.start()
    await watched.start()
    watched.create("one")
    await watched.until("it is marked", lambda: watched.marked("one"))
    watched.delete("one")
    await watched.until_published("one")
    assert watched.finalizers("one") == [FINALIZER]
    assert [view.round for view in (await watched.deletions()).values()] == [1]


async def test_an_object_that_is_going_never_gets_our_finalizer_and_is_reported(watched: WatchedSource) -> None:
    watched.create("late", finalizers=[OTHER])
    watched.delete("late")
    running = await watched.start()
    await watched.until("it is reported", lambda: running.source.counters.missed == 1)
    (event,) = await watched.until("there is an Event", lambda: watched.events(MISSED))
    assert event["regarding"]["name"] == "late"
    assert event["type"] == "Warning"
    assert watched.finalizers("late") == [OTHER]
    assert await watched.deletions() == {}


async def test_an_object_that_went_before_it_was_marked_is_reported_once(watched: WatchedSource) -> None:
    watched.create("late", finalizers=[OTHER])
    watched.delete("late")
    running = await watched.start()
    await watched.until("it is reported", lambda: running.source.counters.missed == 1)
    watched.patch("late", {"labels": {"touched": "yes"}})
    watched.patch("late", {"finalizers": []})
    await watched.until("both changes were seen", lambda: running.source.counters.events >= 2)
    assert running.source.counters.missed == 1
    assert await watched.deletions() == {}


async def test_a_missed_object_is_reported_once_per_period_over_restarts(watched: WatchedSource) -> None:
    watched.create("late", finalizers=[OTHER])
    watched.delete("late")
    for _ in range(2):
        running = await watched.start()
        await _until_missed(watched, running)
        await running.stop()
    assert len(watched.events(MISSED)) == 1
    (event,) = watched.events(MISSED)
    assert event.get("deprecatedCount", 0) <= 1
    # The key is the one that workers use, and runs out by itself.
    stem, uid = watched.installation.shards[0].stem, watched.get("late")["metadata"]["uid"]
    left = await watched.installation.caller.command("PTTL", f"{stem}told:{uid}:event:{MISSED}")
    assert 0 < left <= 600_000


async def test_conflicting_writers_never_lose_a_finalizer(watched: WatchedSource) -> None:
    names = [f"w{number}" for number in range(10)]
    patches: Counter[str] = Counter()

    def meddle(method: str, name: str) -> None:
        """Between our decision and our patch others put finalizers of theirs on, and take them off, twice."""
        if method == "PATCH":
            patches[name] += 1
            if patches[name] <= 2:
                ours = [FINALIZER] if watched.marked(name) else []
                watched.patch(name, {"finalizers": [f"someone.else/{patches[name]}", OTHER, *ours]})

    running = await watched.start(cluster=InterceptedClient(watched.cluster, watched.crd, meddle))
    for name in names:
        watched.create(name, finalizers=["someone.else/0"])
    await watched.until("all are marked", lambda: all(watched.marked(name) for name in names))
    for name in names:
        # Without the resource version our list would have been put in the place of theirs.
        assert watched.finalizers(name) == ["someone.else/2", OTHER, FINALIZER]
    assert min(patches.values()) >= 3
    for name in names:
        patches[name] = 0
        watched.patch(name, {"annotations": {GC: "disabled"}})
    await watched.until("none is marked", lambda: not any(watched.marked(name) for name in names))
    assert all(watched.finalizers(name) == ["someone.else/2", OTHER] for name in names)
    assert running.source.problem == ""


@pytest.mark.long
async def test_more_than_can_wait_to_be_marked_is_marked_all_the_same(
    watched: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finalizer_queue, "_MOST_QUEUED", 4)
    names = [f"w{number}" for number in range(20)]
    for name in names:
        watched.create(name)
    running = await watched.start(watch=msgspec.structs.replace(QUICK, page=100))
    await watched.until("all are marked", lambda: running.source.counters.marked == 20)
    assert all(watched.marked(name) for name in names)
    assert running.source.counters.relists > 1


async def test_opting_out_takes_our_finalizer_off_a_live_object(watched: WatchedSource) -> None:
    await watched.start()
    watched.create("one", finalizers=[OTHER])
    await watched.until("it is marked", lambda: watched.marked("one"))
    watched.patch("one", {"annotations": {GC: "disabled"}})
    await watched.until("it is not marked", lambda: not watched.marked("one"))
    assert watched.finalizers("one") == [OTHER]
    assert await watched.deletions() == {}


async def test_an_annotation_with_an_unknown_value_changes_nothing(watched: WatchedSource) -> None:
    await watched.start()
    watched.create("one")
    await watched.until("it is marked", lambda: watched.marked("one"))
    watched.patch("one", {"annotations": {GC: "perhaps"}})
    watched.create("two", annotations={GC: "perhaps"})
    watched.create("three")
    await watched.until("the next one is marked", lambda: watched.marked("three"))
    assert watched.marked("one")
    assert not watched.marked("two")


async def test_labels_opt_in_and_out(watched: WatchedSource) -> None:
    await watched.start(opt_in="team", opt_out="team=b")
    watched.create("a", labels={"team": "a"})
    watched.create("b", labels={"team": "b"})
    watched.create("none")
    await watched.until("it is marked", lambda: watched.marked("a"))
    watched.patch("a", {"labels": {"team": "b"}})
    watched.patch("b", {"labels": {"team": "a"}})
    await watched.until("they changed places", lambda: watched.marked("b") and not watched.marked("a"))
    assert not watched.marked("none")


async def test_nothing_is_marked_in_a_dry_run_of_any_level(watched: WatchedSource) -> None:
    watched.create("one")
    source = await watched.start(name="s", dry_run=True)
    everything = await watched.start(name="c", policy=PolicySettings(dry_run=True))
    await source.stop()
    await everything.stop()
    watched.create("own", annotations={DRY_RUN: "true"})
    running = await watched.start(adopt_existing=True)
    await watched.until("the other is marked", lambda: watched.marked("one"))
    assert not watched.marked("own")
    await running.stop()
    watched.kube.patch(f"/api/v1/namespaces/{watched.namespace}", {"metadata": {"annotations": {DRY_RUN: "true"}}})
    watched.create("two")
    await watched.start(adopt_existing=True)
    await watched.stays("it is not marked", lambda: not watched.marked("two"))


async def test_nothing_is_marked_or_unmarked_while_paused(watched: WatchedSource) -> None:
    first = await watched.start()
    watched.create("old")
    await watched.until("it is marked", lambda: watched.marked("old"))
    await first.stop()
    watched.patch("old", {"annotations": {GC: "disabled"}})
    watched.create("new")
    paused = await watched.start(paused=True)
    await watched.stays("nothing changed", lambda: watched.marked("old") and not watched.marked("new"))
    await paused.stop()
    await watched.start()
    await watched.until("it goes on", lambda: watched.marked("new") and not watched.marked("old"))


async def test_objects_older_than_the_source_are_left_alone_unless_asked_for(watched: WatchedSource) -> None:
    watched.create("old")
    watched.create("chosen", annotations={GC: "enabled"})
    created = watched.get("old")["metadata"]["creationTimestamp"]
    assert created
    later = _ms(created) + 60_000
    running = await watched.start(enabled_at=later)
    await watched.until("the chosen one is marked", lambda: watched.marked("chosen"))
    assert not watched.marked("old")
    watched.patch("old", {"annotations": {GC: "enabled"}})
    await watched.until("so is the old one now", lambda: watched.marked("old"))
    await running.stop()
    watched.create("third")
    adopting = await watched.start(enabled_at=later, adopt_existing=True)
    await watched.until("everything is adopted", lambda: watched.marked("third"))
    await adopting.stop()


async def test_an_object_of_the_same_second_as_the_enabling_counts_as_new(watched: WatchedSource) -> None:
    watched.create("one")
    created = _ms(watched.get("one")["metadata"]["creationTimestamp"])
    await watched.start(enabled_at=created + 900)
    await watched.until("it is marked", lambda: watched.marked("one"))


async def test_our_finalizer_removed_by_someone_else_withdraws_consent(watched: WatchedSource) -> None:
    running = await watched.start()
    watched.create("stays", finalizers=[OTHER])
    watched.create("goes")
    await watched.until("both are marked", lambda: watched.marked("stays") and watched.marked("goes"))
    watched.delete("stays")
    watched.delete("goes")
    await watched.until_published("stays", "goes")
    watched.patch("stays", {"finalizers": [OTHER]})
    watched.patch("goes", {"finalizers": []})
    await watched.until("both are withdrawn", lambda: running.source.counters.withdrawn == 2)
    found = await watched.deletions()
    assert {name: view.state for name, view in found.items()} == {"stays": "dropped", "goes": "dropped"}
    assert running.source.counters.missed == 0


async def test_a_release_of_our_own_withdraws_and_reports_nothing(watched: WatchedSource) -> None:
    running = await watched.start()
    watched.create("one", finalizers=[OTHER])
    watched.create("two")
    await watched.until("both are marked", lambda: watched.marked("one") and watched.marked("two"))
    watched.delete("one")
    watched.delete("two")
    found = await watched.until_published("one", "two")
    await watched.end(found["one"].id, "releasing")
    await watched.end(found["two"].id, "done")
    watched.patch("one", {"finalizers": [OTHER]})
    watched.patch("two", {"finalizers": []})
    await watched.until("the last change was seen", lambda: running.source.counters.owned == 1)
    assert (running.source.counters.withdrawn, running.source.counters.missed) == (0, 0)
    assert (await watched.deletions()).keys() == {"one", "two"}


@pytest.mark.long
async def test_an_object_still_going_whose_record_is_final_gets_the_next_round(watched: WatchedSource) -> None:
    running = await watched.start()
    watched.create("one")
    await watched.until("it is marked", lambda: watched.marked("one"))
    watched.delete("one")
    found = await watched.until_published("one")
    await watched.end(found["one"].id)
    await watched.until_listed_again(running)
    found = await watched.until_published("one", "one 2")
    await watched.until_listed_again(running)
    await watched.end(found["one 2"].id, "dropped")
    await watched.until_listed_again(running)
    found = await watched.until_published("one 3")
    # The first record is forgotten one day: that must not begin the count anew.
    await watched.installation.caller.command(
        "UNLINK", f"{watched.installation.shards[0].stem}deletion:{found['one'].id}"
    )
    await watched.until_listed_again(running)
    open_ones = {name for name, view in (await watched.deletions()).items() if view.state == "published"}
    assert open_ones == {"one 3"}


@pytest.mark.invariant(5)
async def test_an_emptied_redis_heals_itself(watched: WatchedSource) -> None:
    running = await watched.start()
    names = [f"w{number}" for number in range(10)]
    for name in names:
        watched.create(name)
    await watched.until("all are marked", lambda: all(watched.marked(name) for name in names))
    for name in names:
        watched.delete(name)
    await watched.until_published(*names)
    await watched.empty_redis()
    assert await watched.deletions() == {}
    await watched.until_published(*names)
    assert running.source.problem == ""


async def test_labels_that_leave_the_selector_opt_a_live_object_out(watched: WatchedSource) -> None:
    running = await watched.start(selector="team=a")
    watched.create("seen", labels={"team": "a"})
    watched.create("unseen", labels={"team": "a"})
    await watched.until("both are marked", lambda: watched.marked("seen") and watched.marked("unseen"))
    watched.patch("seen", {"labels": {"team": "b"}})
    await watched.until("it is let go", lambda: not watched.marked("seen"))
    await running.stop()
    watched.patch("unseen", {"labels": {"team": "b"}})
    await watched.start(selector="team=a")
    await watched.until("so is the other", lambda: not watched.marked("unseen"))
    assert await watched.deletions() == {}


async def test_leaving_the_scope_by_settings_never_releases_an_object_that_is_going(watched: WatchedSource) -> None:
    first = await watched.start(selector="team=a")
    watched.create("going", labels={"team": "a"})
    watched.create("living", labels={"team": "a"})
    await watched.until("both are marked", lambda: watched.marked("going") and watched.marked("living"))
    await first.stop()
    watched.delete("going")
    await watched.start(selector="team=b")
    await watched.until_published("going")
    await watched.until("the living one is let go", lambda: not watched.marked("living"))
    assert watched.marked("going")


async def test_a_namespace_that_the_settings_name_no_more_is_cleared_out(watched: WatchedSource, api: TestApi) -> None:
    other = api.namespace()
    path = watched.crd.path(other)
    for name in ("living", "going"):
        api.kube.create(path, watched.crd.body(name))
    first = await watched.start(namespaces=(watched.namespace, other))
    await watched.until("both are marked", lambda: first.source.counters.marked == 2)
    await first.stop()
    api.kube.delete(f"{path}/going")
    often = msgspec.structs.replace(QUICK, relist=timedelta(seconds=1))
    running = await watched.start(watch=often)
    assert set(await watched.until_published("going")) == {"going"}
    await watched.until("the living one is let go", lambda: not watched.finalizers("living", f"{path}/living"))
    assert watched.finalizers("going", f"{path}/going") == [FINALIZER]
    assert other in (await watched.facts())["namespaces"]
    api.kube.patch(f"{path}/going", {"metadata": {"finalizers": []}})

    async def forgotten() -> bool:
        return other not in (await watched.facts())["namespaces"]

    await watched.until("the namespace is forgotten", forgotten)
    assert running.source.problem == ""


async def test_former_namespaces_are_listed_seldom_while_only_going_objects_are_left(
    watched: WatchedSource, api: TestApi
) -> None:
    other = api.namespace()
    path = watched.crd.path(other)
    for name in ("living", "going"):
        api.kube.create(path, watched.crd.body(name))
    first = await watched.start(namespaces=(watched.namespace, other))
    await watched.until("both are marked", lambda: first.source.counters.marked == 2)
    await first.stop()
    api.kube.delete(f"{path}/going")
    lists: Counter[str] = Counter()

    def count(method: str, name: str) -> None:
        if method == "LIST":
            lists[name] += 1

    quick = msgspec.structs.replace(QUICK, retry=timedelta(milliseconds=50))
    await watched.start(cluster=InterceptedClient(watched.cluster, watched.crd, count), watch=quick)
    await watched.until("the living one is let go", lambda: not watched.finalizers("living", f"{path}/living"))
    await watched.until("it has been looked at since", lambda: lists[other] >= 2)
    settled = lists[other] + 1
    await watched.stays("it is listed no more", lambda: lists[other] <= settled, timedelta(seconds=1))
    # An emptied Redis is noticed all the same: what is going there is published again.
    await watched.empty_redis()
    await watched.until_published("going")


async def test_a_renamed_source_takes_over_what_its_old_self_had_published(watched: WatchedSource) -> None:
    first = await watched.start()
    for name in ("published", "held", "running"):
        watched.create(name)
    await watched.until("all are marked", lambda: first.source.counters.marked == 3)
    for name in ("published", "held", "running"):
        watched.delete(name)
    found = await watched.until_published("published", "held", "running")
    await first.stop()
    shard = watched.installation.shards[0]
    held = found["held"]
    event = Event(
        cluster=held.cluster, resource=held.resource, uid=held.uid, name=held.name, namespace=held.namespace,
        source=held.source,
    )  # fmt: skip
    await shard.hold(
        [
            UnplannedEvent(
                str(held.entry), "held", "no planner for source 'widgets'", held.id, event_fields(event), 60_000
            )
        ]
    )
    assert (await watched.deletions())["held"].state == "held"
    await watched.end(found["running"].id, "running")
    running = await watched.start(name="renamed")
    found = await watched.until_published("published 2", "held 2")
    for name in ("published", "held"):
        assert found[name].state == "dropped"
        assert "source widgets is no longer declared" in found[name].withdrawn
        assert (found[f"{name} 2"].state, found[f"{name} 2"].source) == ("published", "renamed")
    # What has begun is not begun a second time: a person is told.
    assert found["running"].state == "running"
    assert "declare it again" in running.source.problem
    await watched.until_listed_again(running)
    assert set(await watched.deletions()) == {*found}
    watched.patch("running", {"finalizers": []})
    await watched.until_listed_again(running)
    await watched.until("the trouble is over", lambda: running.source.problem == "")


async def test_two_sources_of_one_object_are_reported_when_it_is_deleted(watched: WatchedSource) -> None:
    shared = {"resource": watched.crd.resource, "collector": "none", "namespaces": (watched.namespace,)}
    wide, narrow = SourceSettings(**shared), SourceSettings(**shared, selector="team=a")  # type: ignore[arg-type]
    first = await watched.start(name="wide", others={"narrow": narrow})
    watched.create("one", labels={"team": "a"})
    await watched.until("it is marked", lambda: watched.marked("one"))
    watched.delete("one")
    await watched.until_published("one")
    second = await watched.start(name="narrow", selector="team=a", others={"wide": wide})
    await watched.until("it is told", lambda: "also an object of source wide" in second.source.problem)
    assert first.source.problem == ""
    assert list(await watched.deletions()) == ["one"]
    watched.patch("one", {"finalizers": []})
    await watched.until_listed_again(second)
    await watched.until("it is over", lambda: second.source.problem == "")


async def test_a_source_that_only_observes_now_lets_live_objects_go(watched: WatchedSource) -> None:
    first = await watched.start()
    watched.create("living")
    watched.create("going")
    await watched.until("both are marked", lambda: watched.marked("living") and watched.marked("going"))
    await first.stop()
    watched.delete("going")
    await watched.start(mode="observe")
    await watched.until("the living one is let go", lambda: not watched.marked("living"))
    assert watched.marked("going")
    assert await watched.deletions() == {}


async def test_a_source_leaves_alone_what_another_one_claims(watched: WatchedSource) -> None:
    shared = {"resource": watched.crd.resource, "collector": "none", "namespaces": (watched.namespace,)}
    other = SourceSettings(**shared, opt_in="team=b")  # type: ignore[arg-type]
    mine = await watched.start(name="mine", opt_in="team=a", others={"other": other})
    await watched.start(
        name="other", opt_in="team=b", others={"mine": SourceSettings(**shared, opt_in="team=a")}  # type: ignore[arg-type]
    )  # fmt: skip
    watched.create("a", labels={"team": "a"})
    watched.create("b", labels={"team": "b"})
    await watched.until("both are marked", lambda: watched.marked("a") and watched.marked("b"))
    watched.delete("b")
    found = await watched.until_published("b")
    assert found["b"].source == "other"
    assert mine.source.counters.unmarked == 0
    await watched.stays("it is left alone", lambda: watched.marked("a"), timedelta(milliseconds=300))


async def _until_missed(watched: WatchedSource, running: RunningWatch) -> None:
    await watched.until("it is reported", lambda: running.source.counters.missed == 1)


def _ms(stamp: str) -> int:
    return int(datetime.fromisoformat(stamp).timestamp() * 1000)
