"""Annotations that are corrected on an object in deletion: what was held because of them continues at once, without a
relist."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from service.contract import Blocked, Event
from service.contract.names import STATUS
from service.engine.script_arguments import UnplannedEvent, event_fields
from service.kubernetes import ClusterError, Forbidden, KubeObject, KubernetesClient, Unavailable, WatchEvent
from service.watching import recheck
from service.watching.assignment import Assignment
from service.watching.recheck import OBJECT_CHANGED, Rechecks
from service.watching.source_status import SourceStatus
from service.watching.source_watch import SourceWatch
from service.watching.watch_follower import WatchBuffer
from tests.engine.scripted_provider import LANE as HAND_LANE
from tests.engine.scripted_provider import event, thing
from tests.engine.waiting import PATIENCE
from tests.integration.judged_source import SOURCE, JudgedSource
from tests.integration.watch_side import judged
from tests.integration.watched_source import InterceptedClient
from tests.simulated.collector import recognise
from workers.handlers.protocol import NotCleared

__all__ = ["judged"]

POLICY = "knell.dev/deletion-policy"
PROTECTED = "knell.dev/prevent-delete"
MINUTES = timedelta(minutes=10)


Watch = Callable[..., Awaitable[SourceWatch]]


@pytest.fixture
async def watch(judged: JudgedSource, cluster: KubernetesClient) -> AsyncIterator[Watch]:
    """Has the source watched, as it is declared by then: what is deleted is published by it, and not by hand."""
    tasks: list[asyncio.Task[None]] = []

    async def begin(through: KubernetesClient = cluster) -> SourceWatch:
        run = SourceWatch(assigned(judged, through))
        tasks.append(asyncio.create_task(run.run()))

        async def ready() -> bool:
            return run.ready

        await judged.until("everything is listed", ready)
        return run

    yield begin
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def assigned(
    judged: JudgedSource, cluster: KubernetesClient, lease_held: Callable[[], bool] = lambda: True
) -> Assignment:
    return Assignment(
        name=SOURCE,
        settings=judged.settings.sources[SOURCE],
        cluster=cluster,
        cluster_uid=judged.identity,
        installation=judged.install(),
        recognise=recognise,
        lease_held=lease_held,
    )


async def until_noticed(judged: JudgedSource, run: SourceWatch, before: int) -> None:
    async def noticed() -> bool:
        return run.counters.events > before

    await judged.until("the change is seen", noticed)


async def gather(judged: JudgedSource, monkeypatch: pytest.MonkeyPatch, **metadata: Any) -> None:
    """From now on changes are read and not dealt with, until an object `last` is among them: then all together."""
    take, waiting = WatchBuffer.take, asyncio.Event()

    async def held(self: WatchBuffer, within: float) -> list[WatchEvent]:
        async def complete() -> bool:
            return any(change.seen is not None and change.seen.name == "last" for change in self._changes)

        waiting.set()
        await judged.until("the last change is read", complete)
        monkeypatch.setattr(WatchBuffer, "take", take)
        return await take(self, within)

    monkeypatch.setattr(WatchBuffer, "take", held)
    # Ends a wait for changes that is under way.
    judged.make("first", **metadata)
    async with asyncio.timeout(PATIENCE.total_seconds()):
        await waiting.wait()


async def until_replayed(judged: JudgedSource, one: Event) -> None:
    async def look() -> bool:
        return f"deletion:{one.deletion}" in await judged.decisions("replayed")

    await judged.until(f"{one.deletion} is planned again", look)


# ---- held deletions


async def test_a_deletion_held_for_an_unknown_value_goes_on_when_the_value_is_fixed(
    judged: JudgedSource, watch: Watch
) -> None:
    await watch()
    await judged.work()
    one = await judged.gone("w", annotations={POLICY: "delte"})
    await judged.until_held(one, POLICY, "'delte'")
    assert judged.there("w")
    judged.annotate("w", **{POLICY: "delete"})
    await judged.until_done(one)
    assert not judged.there("w")
    assert judged.read("w") is None
    assert await judged.decisions("replayed") == [f"deletion:{one.deletion}"]


async def test_a_fixed_value_that_is_wrong_again_holds_again_with_the_new_reason(
    judged: JudgedSource, watch: Watch
) -> None:
    await watch()
    await judged.work()
    one = await judged.gone("w", annotations={POLICY: "delte"})
    await judged.until_held(one, "'delte'")
    judged.annotate("w", **{POLICY: "dleete"})
    await judged.until_held(one, "'dleete'")
    assert judged.deletes == 0
    judged.annotate("w", **{POLICY: "retain"})
    await judged.until_done(one)
    assert judged.there("w")


@pytest.mark.parametrize("mark", [PROTECTED, "knell.dev/dry-run"])
async def test_a_deletion_goes_on_when_what_stood_against_it_is_taken_off(
    judged: JudgedSource, watch: Watch, mark: str
) -> None:
    await watch()
    await judged.work()
    one = await judged.gone("w", annotations={mark: "true"})
    await judged.until_held(one, mark)
    judged.annotate("w", **{mark: None})
    await judged.until_done(one)
    assert not judged.there("w")


async def test_a_label_that_opted_it_out_is_noticed_too(judged: JudgedSource, watch: Watch) -> None:
    judged.source(opt_out="keep=yes")
    await watch()
    await judged.work()
    one = await judged.gone("w", labels={"keep": "yes"})
    await judged.until_held(one, "keep=yes")
    judged.api.kube.patch(judged.path("w"), {"metadata": {"labels": {"keep": None}}})
    await judged.until_done(one)
    assert not judged.there("w")


async def test_an_object_that_comes_back_into_the_selector_goes_on(judged: JudgedSource, watch: Watch) -> None:
    judged.source(selector="team=blue")
    await watch()
    one = await judged.gone("w", labels={"team": "blue"})
    judged.api.kube.patch(judged.path("w"), {"metadata": {"labels": {"team": "red"}}})
    await judged.work()
    await judged.until_held(one, "team=blue")
    judged.api.kube.patch(judged.path("w"), {"metadata": {"labels": {"team": "blue"}}})
    await judged.until_done(one)
    assert not judged.there("w")


async def test_an_object_that_is_back_in_the_selector_before_the_watch_dealt_with_its_leaving_goes_on(
    judged: JudgedSource, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch reads both changes in one go, and the object looks as it did before them."""
    judged.source(selector="team=blue")
    run = await watch()
    one = await judged.gone("w", labels={"team": "blue"})
    await gather(judged, monkeypatch, labels={"team": "blue"})
    judged.api.kube.patch(judged.path("w"), {"metadata": {"labels": {"team": "red"}}})
    await judged.work()
    await judged.until_held(one, "team=blue")
    judged.api.kube.patch(judged.path("w"), {"metadata": {"labels": {"team": "blue"}}})
    judged.make("last", labels={"team": "blue"})
    await judged.until_done(one)
    assert not judged.there("w")

    async def counted() -> bool:
        return run.counters.owned == 2

    await judged.until("only the two others are counted", counted)


async def test_an_object_that_is_back_in_the_selector_when_the_watch_reads_it_after_its_leaving_goes_on(
    judged: JudgedSource, cluster: KubernetesClient, watch: Watch
) -> None:
    """The watch knows only that it is no longer in the selector, asks for it, and finds it as it was."""
    left, back = threading.Event(), threading.Event()

    def meddle(method: str, name: str) -> None:
        if (method, name) == ("GET", "w") and left.is_set():
            back.wait(PATIENCE.total_seconds())

    judged.source(selector="team=blue")
    await watch(InterceptedClient(cluster, judged.crd, meddle))
    one = await judged.gone("w", labels={"team": "blue"})
    left.set()
    judged.api.kube.patch(judged.path("w"), {"metadata": {"labels": {"team": "red"}}})
    await judged.work()
    await judged.until_held(one, "team=blue")
    judged.api.kube.patch(judged.path("w"), {"metadata": {"labels": {"team": "blue"}}})
    back.set()
    await judged.until_done(one)
    assert not judged.there("w")


@pytest.mark.parametrize("trouble", [Unavailable("no answer"), Forbidden("not allowed")])
async def test_an_object_that_is_back_in_the_selector_goes_on_where_the_watch_could_not_read_it_after_its_leaving(
    judged: JudgedSource, cluster: KubernetesClient, watch: Watch, trouble: ClusterError
) -> None:
    """Nobody could tell whether it was gone. It looks as it did before, in the next list or event."""
    left, asked, back = threading.Event(), threading.Event(), threading.Event()

    def meddle(method: str, name: str) -> None:
        if (method, name) == ("GET", "w") and left.is_set() and not asked.is_set():
            asked.set()
            raise trouble
        if method == "LIST" and asked.is_set():
            back.wait(PATIENCE.total_seconds())

    judged.source(selector="team=blue")
    await watch(InterceptedClient(cluster, judged.crd, meddle))
    one = await judged.gone("w", labels={"team": "blue"})
    left.set()
    judged.api.kube.patch(judged.path("w"), {"metadata": {"labels": {"team": "red"}}})
    await judged.work()
    await judged.until_held(one, "team=blue")

    async def unanswered() -> bool:
        return asked.is_set()

    await judged.until("the watch has asked for it", unanswered)
    judged.api.kube.patch(judged.path("w"), {"metadata": {"labels": {"team": "blue"}}})
    back.set()
    await judged.until_done(one)
    assert not judged.there("w")


async def test_an_object_that_left_its_source_while_going_is_released_by_retain(
    judged: JudgedSource, watch: Watch
) -> None:
    judged.source(opt_out="keep=yes")
    await watch()
    await judged.stop_lanes()
    one = await judged.gone("w")
    judged.api.kube.patch(judged.path("w"), {"metadata": {"labels": {"keep": "yes"}}})
    await judged.work()
    await judged.until_held(one, "keep=yes", "not released by that")
    await judged.free_lanes()
    judged.annotate("w", **{POLICY: "retain"})
    await judged.until_done(one)
    assert judged.read("w") is None
    assert judged.there("w")


async def test_a_deletion_held_while_its_annotations_changed_is_rechecked_a_moment_later(
    judged: JudgedSource, watch: Watch
) -> None:
    """Who plans it has read the old marks, and says so only when the new ones have been seen."""
    run = await watch()
    one = await judged.gone("w", annotations={POLICY: "delte"})
    shard = judged.shard(one)
    ((_, ((entry, _),)),) = await judged.client.xreadgroup("planners", "hand", {shard.stem + "events": ">"}, count=1)
    seen = run.counters.events
    judged.annotate("w", **{POLICY: "delete"})
    await until_noticed(judged, run, seen)
    await shard.hold([UnplannedEvent(entry.decode(), "held", "of old", one.deletion, list(event_fields(one)), 600_000)])
    await until_replayed(judged, one)


# ---- what is left as it is


async def test_a_change_that_policy_does_not_go_by_plans_nothing_again(judged: JudgedSource, watch: Watch) -> None:
    run = await watch()
    await judged.work()
    one = await judged.gone("w", annotations={POLICY: "delte"})
    await judged.until_held(one, "'delte'")
    seen = run.counters.events
    judged.annotate("w", **{"example.com/note": "mind the gap", STATUS: "{}"})
    judged.api.kube.patch(judged.path("w"), {"spec": {"owner": "another"}})
    await until_noticed(judged, run, seen)

    async def held() -> bool:
        return await judged.state(one) == "held" and not await judged.decisions("replayed")

    await judged.stays("it is held", held, timedelta(seconds=1))


async def test_the_annotations_of_a_live_object_are_not_compared(judged: JudgedSource, watch: Watch) -> None:
    run = await watch()
    judged.make("w")
    seen = run.counters.events
    judged.annotate("w", **{POLICY: "retain"})
    await until_noticed(judged, run, seen)
    assert run._rechecks._known == {}


async def test_without_the_lease_nothing_is_brought_forward(judged: JudgedSource) -> None:
    one = event("u1")
    entry = await judged.deliver(one)
    await judged.shard(one).hold(
        [UnplannedEvent(entry, "held", "of old", one.deletion, list(event_fields(one)), 600_000)]
    )
    holding = False
    assignment = assigned(judged, judged.cluster, lambda: holding)
    made = Rechecks(assignment, SourceStatus(assignment, judged.inventory))
    task = asyncio.create_task(made.run())
    try:
        made.observe(one.deletion, KubeObject(uid="u1", name="w", deleting=1))
        made.observe(one.deletion, KubeObject(uid="u1", name="w", deleting=1, labels={"a": "b"}))

        async def held() -> bool:
            return await judged.state(one) == "held"

        await judged.stays("it is held", held, timedelta(milliseconds=300))
        holding = True
        await until_replayed(judged, one)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_no_more_objects_are_known_than_may_be(judged: JudgedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recheck, "_MOST_KNOWN", 3)
    assignment = assigned(judged, judged.cluster)
    made = Rechecks(assignment, SourceStatus(assignment, judged.inventory))
    for number in range(10):
        made.observe(f"d{number}", KubeObject(uid=f"u{number}", name="w", deleting=1))
    assert list(made._known) == ["u7", "u8", "u9"]


# ---- jobs that the gate refused


async def test_jobs_refused_for_a_protection_go_on_when_it_is_taken_off(judged: JudgedSource, watch: Watch) -> None:
    await watch()
    await judged.stop_lanes()
    await judged.work()
    one = await judged.gone("w", targets=3)
    await judged.until_state(one, "running")
    judged.annotate("w", **{PROTECTED: "true"})
    await judged.free_lanes()
    await judged.until_refused(one, PROTECTED)
    assert judged.deletes == 0
    judged.annotate("w", **{PROTECTED: None})
    await judged.until_done(one)
    assert judged.deletes == 3
    assert await judged.members("held") == {}


async def test_a_protection_that_was_over_before_the_watch_dealt_with_it_is_noticed_too(
    judged: JudgedSource, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both changes are read in one go, and the latest looks as the first did; a worker saw what was in between."""
    await watch()
    await judged.stop_lanes()
    await judged.work()
    one = await judged.gone("w", targets=3)
    await judged.until_state(one, "running")
    await gather(judged, monkeypatch)
    judged.annotate("w", **{PROTECTED: "true"})
    await judged.free_lanes()
    await judged.until_refused(one, PROTECTED)
    judged.annotate("w", **{PROTECTED: None})
    judged.make("last")
    await judged.until_done(one)
    assert judged.deletes == 3


async def test_only_refused_jobs_are_brought_forward_however_many_there_are(judged: JudgedSource) -> None:
    """Job by job in bounded steps; what waits for another reason, or is in somebody's hands, is left there."""
    one, refusal = event("u1"), NotCleared("protected", refused=True, deletion="")
    await judged.lay(one, [thing(f"t{number}") for number in range(2300)])
    for count in (1000, 1000, 298):
        await judged.settle(await judged.take(one, "hand", HAND_LANE, count), "hand", refusal)
    await judged.settle(await judged.take(one, "hand", HAND_LANE, 1), "hand", Blocked("a volume", MINUTES))
    (in_hand,) = (await judged.take(one, "hand", HAND_LANE, 1)).lanes[0].jobs
    now = await judged.now()
    held = await judged.members("held")
    before = await judged.queue(HAND_LANE)
    assert len(before) == 2299
    assert min(before.values()) > now

    first, brought = 0, list[int]()
    while first >= 0:
        (answer,) = await judged.shard(one).recheck([(one.deletion, first)], OBJECT_CHANGED)
        assert answer.state == "running"
        first = answer.next
        brought.append(answer.forward)
    assert (sum(brought), len(brought)) == (2298, 3)
    assert await judged.decisions("retried") == [one.deletion] * 3
    after = await judged.queue(HAND_LANE)
    now = await judged.now()
    assert sum(due <= now for due in after.values()) == 2298
    # What comes of it is not known yet: they are held, and since when they were.
    assert await judged.members("held") == held
    assert list(await judged.leases(HAND_LANE)) == [in_hand]
    # What is due again is taken as any other job.
    taken = await judged.take(one, "hand", HAND_LANE, 500)
    assert len(taken.lanes[0].jobs) == 500


async def test_what_is_held_for_good_waits_for_an_operator(judged: JudgedSource) -> None:
    """Such as what killed its planners: a label must not set it free."""
    one = event("u1")
    await judged.shard(one).hold(
        [UnplannedEvent(await judged.deliver(one), "held", "it kills", one.deletion, list(event_fields(one)))]
    )
    (answer,) = await judged.shard(one).recheck([(one.deletion, 0)], OBJECT_CHANGED)
    assert (answer.state, answer.forward) == ("held", 0)
    assert await judged.state(one) == "held"
    assert list(await judged.members("held")) == [f"deletion:{one.deletion}"]


async def test_what_is_over_or_unknown_is_left_alone(judged: JudgedSource) -> None:
    done, unknown = event("u1"), event("u2")
    await judged.lay(done, [])
    answers = await judged.shard(done).recheck([(done.deletion, 0)], OBJECT_CHANGED)
    answers += await judged.shard(unknown).recheck([(unknown.deletion, 0)], OBJECT_CHANGED)
    assert [(answer.state, answer.forward, answer.next) for answer in answers] == [("releasing", 0, -1), ("", 0, -1)]
    assert await judged.deletion(unknown) == {}
