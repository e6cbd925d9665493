"""What the watch of the objects does not tell: marks of their Namespaces, and those that changed while a source changed
hands. Everything here would else be looked at again after minutes, longer than any test waits."""

from collections.abc import Collection
from datetime import timedelta

import msgspec
import pytest

from service.cluster import Cluster
from service.contract import Event
from service.settings import GuardSettings
from service.stream.inventory import end_removed
from service.stream.rows import Kept, flat
from service.watching.mending import BEGUN
from service.watching.mending import NAMESPACE as CHANGED
from service.watching.namespace_marks import NamespaceMarks
from service.watching.run import SourceRun
from tests.integration.staged import SOURCE, Stage
from tests.integration.watch_side import Side, ongoing, side, stage

__all__ = ["side", "stage"]

POLICY = "knell.dev/deletion-policy"
PROTECTED = "knell.dev/prevent-delete"
MOMENT = timedelta(seconds=1)


async def observed(stage: Stage, run: SourceRun, name: str) -> Event:
    """One without our finalizer, which is seen, and then is not there any more."""
    one = stage.event(stage.make(name, marked=False))

    async def seen() -> bool:
        return await stage.inventory.recall_one(one.uid) is not None

    await stage.until(f"{name} is remembered", seen)
    stage.api.kube.delete(stage.path(name))

    async def known() -> bool:
        return await stage.state(one) is not None

    await stage.until(f"{name} is published", known)
    assert run.problem == ""
    return one


async def reasons(stage: Stage) -> set[str]:
    return {entry["why"] for entry in await stage.audit("decision") if entry["what"] in ("replayed", "retried")}


# ---- marks of Namespaces


@pytest.mark.parametrize("mode", ["finalizer", "observe"])
async def test_a_deletion_held_for_its_namespace_goes_on_when_that_is_mended(
    stage: Stage, side: Side, mode: str
) -> None:
    stage.source(mode=mode)
    stage.annotate_namespace(**{PROTECTED: "true"})
    await side.follow_namespaces()
    run = await side.begin()
    await stage.work()
    one = await (stage.gone("w") if mode == "finalizer" else observed(stage, run, "w"))
    await stage.until_held(one, PROTECTED, "of its Namespace")
    assert stage.there("w")
    stage.annotate_namespace(**{PROTECTED: None})
    await stage.until_done(one)
    assert not stage.there("w")
    assert await reasons(stage) == {CHANGED}


async def test_jobs_refused_for_a_namespace_go_on_when_that_is_mended(stage: Stage, side: Side) -> None:
    await side.follow_namespaces()
    await side.begin()
    await stage.stop_lanes()
    await stage.work()
    one = await stage.gone("w", targets=3)
    await stage.until_state(one, "running")
    stage.annotate_namespace(**{"services.k8s.aws/prevent-delete": "true"})
    await stage.free_lanes()
    await stage.until_refused(one, "of its Namespace")
    assert stage.deletes == 0
    stage.annotate_namespace(**{"services.k8s.aws/prevent-delete": "false"})
    await stage.until_done(one)
    assert stage.deletes == 3
    assert await stage.members("held") == {}


async def test_what_was_held_while_its_namespace_was_mended_is_looked_at_a_moment_later(
    stage: Stage, side: Side
) -> None:
    """Who plans it has read the old marks, and says so only when the new ones have been seen."""
    told = list[Collection[str] | None]()
    stage.annotate_namespace(**{POLICY: "perhaps"})
    (await side.follow_namespaces()).listen(told.append)
    await side.begin()
    one = await stage.gone("w")
    shard = stage.shard(one)
    ((_, ((entry, _),)),) = await stage.client.xreadgroup("planners", "hand", {shard.stem + "events": ">"}, count=1)
    stage.annotate_namespace(**{POLICY: "delete"})

    async def noticed() -> bool:
        return {stage.namespace} in told

    await stage.until("the change is seen", noticed)
    await shard.hold([Kept(entry.decode(), "held", "of old", one.deletion, list(flat(one)), 600_000)])

    async def replayed() -> bool:
        return await stage.decisions("replayed") == [f"deletion:{one.deletion}"]

    await stage.until("it is planned again", replayed)


async def test_what_policy_does_not_go_by_and_other_namespaces_bring_nothing_forward(stage: Stage, side: Side) -> None:
    elsewhere = stage.api.namespace()
    told = list[Collection[str] | None]()
    (await side.follow_namespaces()).listen(told.append)
    await side.begin()
    await stage.work()
    one = await stage.gone("w", annotations={POLICY: "perhaps"})
    await stage.until_held(one, POLICY)
    stage.annotate_namespace(**{"example.com/note": "mind the gap", "example.com/deletion-policy": "retain"})
    stage.api.kube.patch(f"/api/v1/namespaces/{elsewhere}", {"metadata": {"annotations": {PROTECTED: "true"}}})

    async def noticed() -> bool:
        return {elsewhere} in told

    await stage.until("the other change is seen", noticed)

    async def held() -> bool:
        return await stage.state(one) == "held" and not await stage.decisions("replayed")

    await stage.stays("it is held", held, MOMENT)
    assert not any(names is not None and stage.namespace in names for names in told)


async def test_who_may_not_watch_namespaces_is_only_slower(stage: Stage, side: Side) -> None:
    stage.annotate_namespace(**{PROTECTED: "true"})
    stage.front.refuse(403, lambda method, path: method == "GET" and path == "/api/v1/namespaces")
    followed = await side.follow_namespaces(stage.cluster)
    run = await side.begin()

    async def refused() -> bool:
        return len(stage.front.refused) >= 3

    await stage.until("it is tried now and then", refused)
    assert "namespaces" in followed.trouble
    assert run.problem == ""
    await stage.work()
    one = await stage.gone("w")
    await stage.until_held(one, PROTECTED)
    stage.annotate_namespace(**{PROTECTED: None})

    async def held() -> bool:
        return await stage.state(one) == "held" and not await stage.decisions("replayed")

    await stage.stays("it is held", held, MOMENT)
    # What was not told meanwhile is made good as soon as it may be known.
    stage.front.pass_on()
    await stage.until_done(one)
    assert not stage.there("w")
    assert followed.trouble == ""


async def test_what_changed_while_nobody_watched_is_told_and_only_marked_namespaces_are_kept(
    stage: Stage, cluster: Cluster
) -> None:
    told = list[Collection[str] | None]()
    kept, mended, new = (stage.api.namespace(**marks) for marks in ({PROTECTED: "true"}, {PROTECTED: "true"}, {}))
    stage.api.namespace(note="nothing to us")
    made = NamespaceMarks(cluster, stage.settings.watch)
    made.listen(told.append)

    async def first() -> bool:
        return bool(told)

    async with ongoing(made.run()):
        await stage.until("they are listed", first)
    assert told == [None]
    for name, value in ((mended, None), (new, "true")):
        path = f"/api/v1/namespaces/{name}"
        stage.api.kube.patch(path, {"metadata": {"annotations": {PROTECTED: value}}})

    async def again() -> bool:
        return len(told) > 1

    async with ongoing(made.run()):
        await stage.until("they are listed again", again)
    (changed,) = told[1:]
    assert changed is not None
    assert {mended, new} <= set(changed)
    assert kept not in changed
    assert made._known is not None
    assert {kept, new} <= made._known.keys()
    assert not {mended, stage.namespace} & made._known.keys()


# ---- another replica


@pytest.mark.parametrize("named", [True, False], ids=["one namespace", "every namespace"])
async def test_marks_that_were_mended_while_a_source_changed_hands_are_noticed(
    stage: Stage, side: Side, named: bool
) -> None:
    stage.source(namespaces=(stage.namespace,) if named else ())
    await side.begin()
    await stage.work()
    one = await stage.gone("w", annotations={POLICY: "delte"})
    await stage.until_held(one, "'delte'")
    await side.end()
    stage.annotate("w", **{POLICY: "delete"})
    await side.begin()
    await stage.until_done(one)
    assert not stage.there("w")
    assert await reasons(stage) == {BEGUN}


async def test_protection_that_was_lifted_while_a_source_changed_hands_is_noticed(stage: Stage, side: Side) -> None:
    await side.begin()
    await stage.stop_lanes()
    await stage.work()
    one = await stage.gone("w", targets=3)
    await stage.until_state(one, "running")
    stage.annotate("w", **{PROTECTED: "true"})
    await stage.free_lanes()
    await stage.until_refused(one, PROTECTED)
    await side.end()
    stage.annotate("w", **{PROTECTED: None})
    await side.begin()
    await stage.until_done(one)
    assert stage.deletes == 3


@pytest.mark.long
async def test_what_is_held_is_looked_at_once_by_who_takes_over_and_what_the_guard_holds_is_not(
    stage: Stage, side: Side
) -> None:
    stage.source(guard=GuardSettings(most=1, percent=100))
    await side.begin()
    await stage.work()
    done = await stage.gone("first")
    await stage.until_done(done)
    guarded = await stage.gone("second")
    await stage.until_held(guarded, "guard: ")
    unclear = await stage.gone("third", annotations={POLICY: "delte"})
    await stage.until_held(unclear, "'delte'")
    await side.end()
    await side.begin()

    async def looked_at() -> bool:
        return bool(await stage.decisions("replayed")) and await stage.state(unclear) == "held"

    await stage.until("it is held again", looked_at)

    async def once() -> bool:
        return await stage.decisions("replayed") == [f"deletion:{unclear.deletion}"]

    # Longer than the looks that come after the first.
    await stage.stays("it was looked at once", once, timedelta(seconds=6))
    assert await stage.state(guarded) == "held"


# ---- another name


async def test_what_an_observed_source_held_when_it_was_renamed_says_what_to_do_and_goes_on_by_that(
    stage: Stage, side: Side
) -> None:
    stage.source(mode="observe")
    stage.annotate_namespace(**{PROTECTED: "true"})
    run = await side.begin()
    await stage.work()
    one = await observed(stage, run, "w")
    await stage.until_held(one, PROTECTED)
    await side.end()
    await stage.running[0].stop()
    before = stage.settings
    stage.settings = msgspec.structs.replace(before, sources={"renamed": before.sources[SOURCE]})
    assert await end_removed(stage.installation, stage.settings.sources) == [SOURCE]
    stage.annotate_namespace(**{PROTECTED: None})
    await stage.shard(one).reconsider([(one.deletion, 0)], "by hand")
    await stage.work()
    await stage.until_held(one, f"no planner for source {SOURCE!r}", "declare that source", "`knell held drop`")
    await stage.running[1].stop()
    # As it was told: declared again by its old name.
    stage.settings = before
    await stage.work()
    await side.begin()
    await stage.until_done(one)
    assert not stage.there("w")
