"""Held deletions that are rechecked after changes which the watch of their objects does not show: annotations of
Namespaces, and annotations that changed while a share changed its replica."""

from collections.abc import Collection
from datetime import timedelta

import msgspec
import pytest

from service.contract import Event
from service.engine.inventory import end_undeclared_sources
from service.engine.script_arguments import UnplannedEvent, event_fields
from service.kubernetes import KubernetesClient
from service.settings import GuardSettings
from service.watching.namespace_watch import NamespaceWatch
from service.watching.recheck import NAMESPACE_CHANGED as CHANGED
from service.watching.recheck import WATCHER_CHANGED
from service.watching.source_watch import SourceWatch
from tests.integration.judged_source import SOURCE, JudgedSource
from tests.integration.watch_side import WatchSide, judged, ongoing, side

__all__ = ["judged", "side"]

POLICY = "knell.dev/deletion-policy"
PROTECTED = "knell.dev/prevent-delete"
MOMENT = timedelta(seconds=1)


async def observed(judged: JudgedSource, run: SourceWatch, name: str) -> Event:
    """One without our finalizer, which is seen, and then is not there any more."""
    one = judged.event(judged.make(name, marked=False))

    async def seen() -> bool:
        return await judged.inventory.get(one.uid) is not None

    await judged.until(f"{name} is remembered", seen)
    judged.api.kube.delete(judged.path(name))

    async def known() -> bool:
        return await judged.state(one) is not None

    await judged.until(f"{name} is published", known)
    assert run.problem == ""
    return one


async def reasons(judged: JudgedSource) -> set[str]:
    return {entry["why"] for entry in await judged.audit("decision") if entry["what"] in ("replayed", "retried")}


# ---- marks of Namespaces


@pytest.mark.parametrize("mode", ["finalizer", "observe"])
async def test_a_deletion_held_for_its_namespace_goes_on_when_the_annotation_is_fixed(
    judged: JudgedSource, side: WatchSide, mode: str
) -> None:
    judged.source(mode=mode)
    judged.annotate_namespace(**{PROTECTED: "true"})
    await side.follow_namespaces()
    run = await side.begin()
    await judged.work()
    one = await (judged.gone("w") if mode == "finalizer" else observed(judged, run, "w"))
    await judged.until_held(one, PROTECTED, "of its Namespace")
    assert judged.there("w")
    judged.annotate_namespace(**{PROTECTED: None})
    await judged.until_done(one)
    assert not judged.there("w")
    assert await reasons(judged) == {CHANGED}


async def test_jobs_refused_for_a_namespace_go_on_when_the_annotation_is_fixed(
    judged: JudgedSource, side: WatchSide
) -> None:
    await side.follow_namespaces()
    await side.begin()
    await judged.stop_lanes()
    await judged.work()
    one = await judged.gone("w", targets=3)
    await judged.until_state(one, "running")
    judged.annotate_namespace(**{"services.k8s.aws/prevent-delete": "true"})
    await judged.free_lanes()
    await judged.until_refused(one, "of its Namespace")
    assert judged.deletes == 0
    judged.annotate_namespace(**{"services.k8s.aws/prevent-delete": "false"})
    await judged.until_done(one)
    assert judged.deletes == 3
    assert await judged.members("held") == {}


async def test_a_deletion_held_while_its_namespace_was_fixed_is_rechecked_a_moment_later(
    judged: JudgedSource, side: WatchSide
) -> None:
    """Who plans it has read the old marks, and says so only when the new ones have been seen."""
    told = list[Collection[str] | None]()
    judged.annotate_namespace(**{POLICY: "perhaps"})
    (await side.follow_namespaces()).subscribe(told.append)
    await side.begin()
    one = await judged.gone("w")
    shard = judged.shard(one)
    ((_, ((entry, _),)),) = await judged.client.xreadgroup("planners", "hand", {shard.stem + "events": ">"}, count=1)
    judged.annotate_namespace(**{POLICY: "delete"})

    async def noticed() -> bool:
        return {judged.namespace} in told

    await judged.until("the change is seen", noticed)
    await shard.hold([UnplannedEvent(entry.decode(), "held", "of old", one.deletion, list(event_fields(one)), 600_000)])

    async def replayed() -> bool:
        return await judged.decisions("replayed") == [f"deletion:{one.deletion}"]

    await judged.until("it is planned again", replayed)


async def test_what_policy_does_not_go_by_and_other_namespaces_bring_nothing_forward(
    judged: JudgedSource, side: WatchSide
) -> None:
    elsewhere = judged.api.namespace()
    told = list[Collection[str] | None]()
    (await side.follow_namespaces()).subscribe(told.append)
    await side.begin()
    await judged.work()
    one = await judged.gone("w", annotations={POLICY: "perhaps"})
    await judged.until_held(one, POLICY)
    judged.annotate_namespace(**{"example.com/note": "mind the gap", "example.com/deletion-policy": "retain"})
    judged.api.kube.patch(f"/api/v1/namespaces/{elsewhere}", {"metadata": {"annotations": {PROTECTED: "true"}}})

    async def noticed() -> bool:
        return {elsewhere} in told

    await judged.until("the other change is seen", noticed)

    async def held() -> bool:
        return await judged.state(one) == "held" and not await judged.decisions("replayed")

    await judged.stays("it is held", held, MOMENT)
    assert not any(names is not None and judged.namespace in names for names in told)


async def test_without_permission_to_watch_namespaces_changes_are_noticed_later(
    judged: JudgedSource, side: WatchSide
) -> None:
    judged.annotate_namespace(**{PROTECTED: "true"})
    judged.proxy.refuse(403, lambda method, path: method == "GET" and path == "/api/v1/namespaces")
    followed = await side.follow_namespaces(judged.cluster)
    run = await side.begin()

    async def refused() -> bool:
        return len(judged.proxy.refused) >= 3

    await judged.until("it is tried now and then", refused)
    assert "namespaces" in followed.problem
    assert run.problem == ""
    await judged.work()
    one = await judged.gone("w")
    await judged.until_held(one, PROTECTED)
    judged.annotate_namespace(**{PROTECTED: None})

    async def held() -> bool:
        return await judged.state(one) == "held" and not await judged.decisions("replayed")

    await judged.stays("it is held", held, MOMENT)
    # What was not told meanwhile is made good as soon as it may be known.
    judged.proxy.pass_on()
    await judged.until_done(one)
    assert not judged.there("w")
    assert followed.problem == ""


async def test_changes_while_nothing_watched_are_reported_and_only_annotated_namespaces_are_kept(
    judged: JudgedSource, cluster: KubernetesClient
) -> None:
    told = list[Collection[str] | None]()
    kept, mended, new = (judged.api.namespace(**marks) for marks in ({PROTECTED: "true"}, {PROTECTED: "true"}, {}))
    judged.api.namespace(note="nothing to us")
    made = NamespaceWatch(cluster, judged.settings.watch)
    made.subscribe(told.append)

    async def first() -> bool:
        return bool(told)

    async with ongoing(made.run()):
        await judged.until("they are listed", first)
    assert told == [None]
    for name, value in ((mended, None), (new, "true")):
        path = f"/api/v1/namespaces/{name}"
        judged.api.kube.patch(path, {"metadata": {"annotations": {PROTECTED: value}}})

    async def again() -> bool:
        return len(told) > 1

    async with ongoing(made.run()):
        await judged.until("they are listed again", again)
    (changed,) = told[1:]
    assert changed is not None
    assert {mended, new} <= set(changed)
    assert kept not in changed
    assert made._known is not None
    assert {kept, new} <= made._known.keys()
    assert not {mended, judged.namespace} & made._known.keys()


# ---- another replica


@pytest.mark.parametrize("named", [True, False], ids=["one namespace", "every namespace"])
async def test_annotations_fixed_while_a_share_changed_its_replica_are_noticed(
    judged: JudgedSource, side: WatchSide, named: bool
) -> None:
    judged.source(namespaces=(judged.namespace,) if named else ())
    await side.begin()
    await judged.work()
    one = await judged.gone("w", annotations={POLICY: "delte"})
    await judged.until_held(one, "'delte'")
    await side.end()
    judged.annotate("w", **{POLICY: "delete"})
    await side.begin()
    await judged.until_done(one)
    assert not judged.there("w")
    assert await reasons(judged) == {WATCHER_CHANGED}


async def test_protection_that_was_lifted_while_a_source_changed_hands_is_noticed(
    judged: JudgedSource, side: WatchSide
) -> None:
    await side.begin()
    await judged.stop_lanes()
    await judged.work()
    one = await judged.gone("w", targets=3)
    await judged.until_state(one, "running")
    judged.annotate("w", **{PROTECTED: "true"})
    await judged.free_lanes()
    await judged.until_refused(one, PROTECTED)
    await side.end()
    judged.annotate("w", **{PROTECTED: None})
    await side.begin()
    await judged.until_done(one)
    assert judged.deletes == 3


@pytest.mark.long
async def test_held_deletions_are_rechecked_once_after_a_takeover_except_those_of_the_guard(
    judged: JudgedSource, side: WatchSide
) -> None:
    judged.source(guard=GuardSettings(most=1, percent=100))
    await side.begin()
    await judged.work()
    done = await judged.gone("first")
    await judged.until_done(done)
    guarded = await judged.gone("second")
    await judged.until_held(guarded, "guard: ")
    unclear = await judged.gone("third", annotations={POLICY: "delte"})
    await judged.until_held(unclear, "'delte'")
    await side.end()
    await side.begin()

    async def looked_at() -> bool:
        return bool(await judged.decisions("replayed")) and await judged.state(unclear) == "held"

    await judged.until("it is held again", looked_at)

    async def once() -> bool:
        return await judged.decisions("replayed") == [f"deletion:{unclear.deletion}"]

    # Longer than the looks that come after the first.
    await judged.stays("it was looked at once", once, timedelta(seconds=6))
    assert await judged.state(guarded) == "held"


# ---- another name


async def test_what_an_observed_source_held_when_it_was_renamed_says_what_to_do_and_goes_on_by_that(
    judged: JudgedSource, side: WatchSide
) -> None:
    judged.source(mode="observe")
    judged.annotate_namespace(**{PROTECTED: "true"})
    run = await side.begin()
    await judged.work()
    one = await observed(judged, run, "w")
    await judged.until_held(one, PROTECTED)
    await side.end()
    await judged.running[0].stop()
    before = judged.settings
    judged.settings = msgspec.structs.replace(before, sources={"renamed": before.sources[SOURCE]})
    assert await end_undeclared_sources(judged.installation, judged.settings.sources) == [SOURCE]
    judged.annotate_namespace(**{PROTECTED: None})
    await judged.shard(one).recheck([(one.deletion, 0)], "by hand")
    await judged.work()
    await judged.until_held(one, f"no planner for source {SOURCE!r}", "declare that source", "`knell held drop`")
    await judged.running[1].stop()
    # As it was told: declared again by its old name.
    judged.settings = before
    await judged.work()
    await side.begin()
    await judged.until_done(one)
    assert not judged.there("w")
