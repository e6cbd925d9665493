"""Whoever mends the marks of an object that is going does not wait: what was held because of them goes on at once.
Everything here would else be looked at again after minutes, longer than any test waits."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from service.contract import Blocked, Event
from service.contract.names import STATUS
from service.engine.rows import Kept, flat
from service.kubernetes import Change, Cluster, ClusterError, Forbidden, Seen, Unavailable
from service.watching import reconsidering
from service.watching.assignment import Assignment
from service.watching.collectors import COLLECTORS
from service.watching.following import Inbox
from service.watching.reconsidering import WHY, Reconsidering
from service.watching.reporting import Report
from service.watching.run import SourceRun
from tests.engine.outside import LANE as HAND_LANE
from tests.engine.outside import event, thing
from tests.engine.waiting import PATIENCE
from tests.integration.staged import SOURCE, Stage
from tests.integration.watch_side import stage
from tests.integration.watched import Meddled
from workers.handlers.protocol import NotCleared

__all__ = ["stage"]

POLICY = "knell.dev/deletion-policy"
PROTECTED = "knell.dev/prevent-delete"
MINUTES = timedelta(minutes=10)


Watch = Callable[..., Awaitable[SourceRun]]


@pytest.fixture
async def watch(stage: Stage, cluster: Cluster) -> AsyncIterator[Watch]:
    """Has the source watched, as it is declared by then: what is deleted is published by it, and not by hand."""
    tasks: list[asyncio.Task[None]] = []

    async def begin(through: Cluster = cluster) -> SourceRun:
        run = SourceRun(assigned(stage, through))
        tasks.append(asyncio.create_task(run.run()))

        async def ready() -> bool:
            return run.ready

        await stage.until("everything is listed", ready)
        return run

    yield begin
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def assigned(stage: Stage, cluster: Cluster, may_act: Callable[[], bool] = lambda: True) -> Assignment:
    return Assignment(
        name=SOURCE,
        settings=stage.settings.sources[SOURCE],
        cluster=cluster,
        cluster_uid=stage.identity,
        installation=stage.install(),
        recognise=COLLECTORS["simulated"],
        may_act=may_act,
    )


async def until_noticed(stage: Stage, run: SourceRun, before: int) -> None:
    async def noticed() -> bool:
        return run.tally.events > before

    await stage.until("the change is seen", noticed)


async def gather(stage: Stage, monkeypatch: pytest.MonkeyPatch, **metadata: Any) -> None:
    """From now on changes are read and not dealt with, until an object `last` is among them: then all together."""
    take, waiting = Inbox.take, asyncio.Event()

    async def held(self: Inbox, within: float) -> list[Change]:
        async def complete() -> bool:
            return any(change.seen is not None and change.seen.name == "last" for change in self._changes)

        waiting.set()
        await stage.until("the last change is read", complete)
        monkeypatch.setattr(Inbox, "take", take)
        return await take(self, within)

    monkeypatch.setattr(Inbox, "take", held)
    # Ends a wait for changes that is under way.
    stage.make("first", **metadata)
    async with asyncio.timeout(PATIENCE.total_seconds()):
        await waiting.wait()


async def until_replayed(stage: Stage, one: Event) -> None:
    async def look() -> bool:
        return f"deletion:{one.deletion}" in await stage.decisions("replayed")

    await stage.until(f"{one.deletion} is planned again", look)


# ---- held deletions


async def test_a_deletion_held_for_an_unknown_value_goes_on_when_the_value_is_mended(
    stage: Stage, watch: Watch
) -> None:
    await watch()
    await stage.work()
    one = await stage.gone("w", annotations={POLICY: "delte"})
    await stage.until_held(one, POLICY, "'delte'")
    assert stage.there("w")
    stage.annotate("w", **{POLICY: "delete"})
    await stage.until_done(one)
    assert not stage.there("w")
    assert stage.read("w") is None
    assert await stage.decisions("replayed") == [f"deletion:{one.deletion}"]


async def test_a_mended_value_that_is_wrong_again_holds_again_with_the_new_reason(stage: Stage, watch: Watch) -> None:
    await watch()
    await stage.work()
    one = await stage.gone("w", annotations={POLICY: "delte"})
    await stage.until_held(one, "'delte'")
    stage.annotate("w", **{POLICY: "dleete"})
    await stage.until_held(one, "'dleete'")
    assert stage.deletes == 0
    stage.annotate("w", **{POLICY: "retain"})
    await stage.until_done(one)
    assert stage.there("w")


@pytest.mark.parametrize("mark", [PROTECTED, "knell.dev/dry-run"])
async def test_a_deletion_goes_on_when_what_stood_against_it_is_taken_off(
    stage: Stage, watch: Watch, mark: str
) -> None:
    await watch()
    await stage.work()
    one = await stage.gone("w", annotations={mark: "true"})
    await stage.until_held(one, mark)
    stage.annotate("w", **{mark: None})
    await stage.until_done(one)
    assert not stage.there("w")


async def test_a_label_that_opted_it_out_is_noticed_too(stage: Stage, watch: Watch) -> None:
    stage.source(opt_out="keep=yes")
    await watch()
    await stage.work()
    one = await stage.gone("w", labels={"keep": "yes"})
    await stage.until_held(one, "keep=yes")
    stage.api.kube.patch(stage.path("w"), {"metadata": {"labels": {"keep": None}}})
    await stage.until_done(one)
    assert not stage.there("w")


async def test_an_object_that_comes_back_into_the_selector_goes_on(stage: Stage, watch: Watch) -> None:
    stage.source(selector="team=blue")
    await watch()
    one = await stage.gone("w", labels={"team": "blue"})
    stage.api.kube.patch(stage.path("w"), {"metadata": {"labels": {"team": "red"}}})
    await stage.work()
    await stage.until_held(one, "team=blue")
    stage.api.kube.patch(stage.path("w"), {"metadata": {"labels": {"team": "blue"}}})
    await stage.until_done(one)
    assert not stage.there("w")


async def test_an_object_that_is_back_in_the_selector_before_the_watch_dealt_with_its_leaving_goes_on(
    stage: Stage, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch reads both changes in one go, and the object looks as it did before them."""
    stage.source(selector="team=blue")
    run = await watch()
    one = await stage.gone("w", labels={"team": "blue"})
    await gather(stage, monkeypatch, labels={"team": "blue"})
    stage.api.kube.patch(stage.path("w"), {"metadata": {"labels": {"team": "red"}}})
    await stage.work()
    await stage.until_held(one, "team=blue")
    stage.api.kube.patch(stage.path("w"), {"metadata": {"labels": {"team": "blue"}}})
    stage.make("last", labels={"team": "blue"})
    await stage.until_done(one)
    assert not stage.there("w")

    async def counted() -> bool:
        return run.tally.owned == 2

    await stage.until("only the two others are counted", counted)


async def test_an_object_that_is_back_in_the_selector_when_the_watch_reads_it_after_its_leaving_goes_on(
    stage: Stage, cluster: Cluster, watch: Watch
) -> None:
    """The watch knows only that it is no longer in the selector, asks for it, and finds it as it was."""
    left, back = threading.Event(), threading.Event()

    def meddle(method: str, name: str) -> None:
        if (method, name) == ("GET", "w") and left.is_set():
            back.wait(PATIENCE.total_seconds())

    stage.source(selector="team=blue")
    await watch(Meddled(cluster, stage.crd, meddle))
    one = await stage.gone("w", labels={"team": "blue"})
    left.set()
    stage.api.kube.patch(stage.path("w"), {"metadata": {"labels": {"team": "red"}}})
    await stage.work()
    await stage.until_held(one, "team=blue")
    stage.api.kube.patch(stage.path("w"), {"metadata": {"labels": {"team": "blue"}}})
    back.set()
    await stage.until_done(one)
    assert not stage.there("w")


@pytest.mark.parametrize("trouble", [Unavailable("no answer"), Forbidden("not allowed")])
async def test_an_object_that_is_back_in_the_selector_goes_on_where_the_watch_could_not_read_it_after_its_leaving(
    stage: Stage, cluster: Cluster, watch: Watch, trouble: ClusterError
) -> None:
    """Nobody could tell whether it was gone. It looks as it did before, in the next list or event."""
    left, asked, back = threading.Event(), threading.Event(), threading.Event()

    def meddle(method: str, name: str) -> None:
        if (method, name) == ("GET", "w") and left.is_set() and not asked.is_set():
            asked.set()
            raise trouble
        if method == "LIST" and asked.is_set():
            back.wait(PATIENCE.total_seconds())

    stage.source(selector="team=blue")
    await watch(Meddled(cluster, stage.crd, meddle))
    one = await stage.gone("w", labels={"team": "blue"})
    left.set()
    stage.api.kube.patch(stage.path("w"), {"metadata": {"labels": {"team": "red"}}})
    await stage.work()
    await stage.until_held(one, "team=blue")

    async def unanswered() -> bool:
        return asked.is_set()

    await stage.until("the watch has asked for it", unanswered)
    stage.api.kube.patch(stage.path("w"), {"metadata": {"labels": {"team": "blue"}}})
    back.set()
    await stage.until_done(one)
    assert not stage.there("w")


async def test_an_object_that_left_its_source_while_it_was_going_is_let_go_by_retain(
    stage: Stage, watch: Watch
) -> None:
    stage.source(opt_out="keep=yes")
    await watch()
    await stage.stop_lanes()
    one = await stage.gone("w")
    stage.api.kube.patch(stage.path("w"), {"metadata": {"labels": {"keep": "yes"}}})
    await stage.work()
    await stage.until_held(one, "keep=yes", "not released by that")
    await stage.free_lanes()
    stage.annotate("w", **{POLICY: "retain"})
    await stage.until_done(one)
    assert stage.read("w") is None
    assert stage.there("w")


async def test_what_was_held_while_its_marks_were_changed_is_looked_at_a_moment_later(
    stage: Stage, watch: Watch
) -> None:
    """Who plans it has read the old marks, and says so only when the new ones have been seen."""
    run = await watch()
    one = await stage.gone("w", annotations={POLICY: "delte"})
    shard = stage.shard(one)
    ((_, ((entry, _),)),) = await stage.client.xreadgroup("planners", "hand", {shard.stem + "events": ">"}, count=1)
    seen = run.tally.events
    stage.annotate("w", **{POLICY: "delete"})
    await until_noticed(stage, run, seen)
    await shard.hold([Kept(entry.decode(), "held", "of old", one.deletion, list(flat(one)), 600_000)])
    await until_replayed(stage, one)


# ---- what is left as it is


async def test_a_change_that_policy_does_not_go_by_plans_nothing_again(stage: Stage, watch: Watch) -> None:
    run = await watch()
    await stage.work()
    one = await stage.gone("w", annotations={POLICY: "delte"})
    await stage.until_held(one, "'delte'")
    seen = run.tally.events
    stage.annotate("w", **{"example.com/note": "mind the gap", STATUS: "{}"})
    stage.api.kube.patch(stage.path("w"), {"spec": {"owner": "another"}})
    await until_noticed(stage, run, seen)

    async def held() -> bool:
        return await stage.state(one) == "held" and not await stage.decisions("replayed")

    await stage.stays("it is held", held, timedelta(seconds=1))


async def test_the_marks_of_an_object_that_lives_are_not_even_compared(stage: Stage, watch: Watch) -> None:
    run = await watch()
    stage.make("w")
    seen = run.tally.events
    stage.annotate("w", **{POLICY: "retain"})
    await until_noticed(stage, run, seen)
    assert run._reconsidering._known == {}


async def test_without_the_lease_nothing_is_brought_forward(stage: Stage) -> None:
    one = event("u1")
    entry = await stage.deliver(one)
    await stage.shard(one).hold([Kept(entry, "held", "of old", one.deletion, list(flat(one)), 600_000)])
    holding = False
    assignment = assigned(stage, stage.cluster, lambda: holding)
    made = Reconsidering(assignment, Report(assignment, stage.inventory))
    task = asyncio.create_task(made.run())
    try:
        made.consider(one.deletion, Seen(uid="u1", name="w", deleting=1))
        made.consider(one.deletion, Seen(uid="u1", name="w", deleting=1, labels={"a": "b"}))

        async def held() -> bool:
            return await stage.state(one) == "held"

        await stage.stays("it is held", held, timedelta(milliseconds=300))
        holding = True
        await until_replayed(stage, one)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_no_more_objects_are_known_than_may_be(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconsidering, "_MOST_KNOWN", 3)
    assignment = assigned(stage, stage.cluster)
    made = Reconsidering(assignment, Report(assignment, stage.inventory))
    for number in range(10):
        made.consider(f"d{number}", Seen(uid=f"u{number}", name="w", deleting=1))
    assert list(made._known) == ["u7", "u8", "u9"]


# ---- jobs that the gate refused


async def test_jobs_refused_for_a_protection_go_on_when_it_is_taken_off(stage: Stage, watch: Watch) -> None:
    await watch()
    await stage.stop_lanes()
    await stage.work()
    one = await stage.gone("w", targets=3)
    await stage.until_state(one, "running")
    stage.annotate("w", **{PROTECTED: "true"})
    await stage.free_lanes()
    await stage.until_refused(one, PROTECTED)
    assert stage.deletes == 0
    stage.annotate("w", **{PROTECTED: None})
    await stage.until_done(one)
    assert stage.deletes == 3
    assert await stage.members("held") == {}


async def test_a_protection_that_was_over_before_the_watch_dealt_with_it_is_noticed_too(
    stage: Stage, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both changes are read in one go, and the latest looks as the first did; a worker saw what was in between."""
    await watch()
    await stage.stop_lanes()
    await stage.work()
    one = await stage.gone("w", targets=3)
    await stage.until_state(one, "running")
    await gather(stage, monkeypatch)
    stage.annotate("w", **{PROTECTED: "true"})
    await stage.free_lanes()
    await stage.until_refused(one, PROTECTED)
    stage.annotate("w", **{PROTECTED: None})
    stage.make("last")
    await stage.until_done(one)
    assert stage.deletes == 3


async def test_only_refused_jobs_are_brought_forward_however_many_there_are(stage: Stage) -> None:
    """Job by job in bounded steps; what waits for another reason, or is in somebody's hands, is left there."""
    one, refusal = event("u1"), NotCleared("protected", refused=True, deletion="")
    await stage.lay(one, [thing(f"t{number}") for number in range(2300)])
    for count in (1000, 1000, 298):
        await stage.settle(await stage.take(one, "hand", HAND_LANE, count), "hand", refusal)
    await stage.settle(await stage.take(one, "hand", HAND_LANE, 1), "hand", Blocked("a volume", MINUTES))
    (in_hand,) = (await stage.take(one, "hand", HAND_LANE, 1)).lanes[0].jobs
    now = await stage.now()
    held = await stage.members("held")
    before = await stage.queue(HAND_LANE)
    assert len(before) == 2299
    assert min(before.values()) > now

    first, brought = 0, list[int]()
    while first >= 0:
        (answer,) = await stage.shard(one).reconsider([(one.deletion, first)], WHY)
        assert answer.state == "running"
        first = answer.next
        brought.append(answer.forward)
    assert (sum(brought), len(brought)) == (2298, 3)
    assert await stage.decisions("retried") == [one.deletion] * 3
    after = await stage.queue(HAND_LANE)
    now = await stage.now()
    assert sum(due <= now for due in after.values()) == 2298
    # What comes of it is not known yet: they are held, and since when they were.
    assert await stage.members("held") == held
    assert list(await stage.leases(HAND_LANE)) == [in_hand]
    # What is due again is taken as any other job.
    taken = await stage.take(one, "hand", HAND_LANE, 500)
    assert len(taken.lanes[0].jobs) == 500


async def test_what_is_held_for_good_waits_for_a_person(stage: Stage) -> None:
    """Such as what killed its planners: a label must not set it free."""
    one = event("u1")
    await stage.shard(one).hold([Kept(await stage.deliver(one), "held", "it kills", one.deletion, list(flat(one)))])
    (answer,) = await stage.shard(one).reconsider([(one.deletion, 0)], WHY)
    assert (answer.state, answer.forward) == ("held", 0)
    assert await stage.state(one) == "held"
    assert list(await stage.members("held")) == [f"deletion:{one.deletion}"]


async def test_what_is_over_or_unknown_is_left_alone(stage: Stage) -> None:
    done, unknown = event("u1"), event("u2")
    await stage.lay(done, [])
    answers = await stage.shard(done).reconsider([(done.deletion, 0)], WHY)
    answers += await stage.shard(unknown).reconsider([(unknown.deletion, 0)], WHY)
    assert [(answer.state, answer.forward, answer.next) for answer in answers] == [("releasing", 0, -1), ("", 0, -1)]
    assert await stage.deletion(unknown) == {}
