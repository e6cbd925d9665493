"""What the planner makes of events: a hint each, judged by the live object, its Namespace and the policy."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from service.contract.names import FINALIZER
from service.settings import ClusterSettings, GuardSettings, PolicySettings
from tests.clusters import TestApi
from tests.integration.staged import SOURCE, Stage, staged
from tests.kube import wait_until
from tests.servers import TestServer


@pytest.fixture
async def stage(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(api, embedded_server, tmp_path) as made:
        yield made


# ---- what is meant


async def test_an_object_that_goes_takes_its_resources_along_and_is_released(stage: Stage) -> None:
    one = await stage.going("w", 3)
    await stage.work()
    await stage.until_done(one)
    assert stage.read("w") is None
    assert not any(stage.there("w", number) for number in range(3))
    assert stage.deletes == 3
    assert (await stage.deletion(one))["policy"].startswith("delete: the setting policy.deletion_policy says delete")


@pytest.mark.invariant(8)
async def test_the_targets_come_from_the_object_and_not_from_the_event(stage: Stage) -> None:
    stage.make("w", 1)
    stage.make("other", 1)
    forged = '{"owner":"tag","targets":[{"account":"acct","id":"other-0"}]}'
    one = stage.event(stage.delete("w"), data=forged)
    await stage.publish(one)
    await stage.work()
    await stage.until_done(one)
    assert not stage.there("w")
    assert stage.there("other")


async def test_an_object_without_a_namespace_is_judged_by_itself(
    api: TestApi, embedded_server: TestServer, tmp_path: Path
) -> None:
    async with staged(api, embedded_server, tmp_path, own_crd=api.crd(scope="Cluster")) as stage:
        stage.namespace = ""
        one = await stage.going("w")
        held = await stage.going("p", annotations={"knell.dev/prevent-delete": "true"})
        await stage.work()
        await stage.until_done(one)
        await stage.until_held(held, "protected:")
        assert not stage.there("w")
        assert stage.there("p")


async def test_a_version_that_is_no_longer_served_is_discovered_anew(
    api: TestApi, embedded_server: TestServer, tmp_path: Path
) -> None:
    crd = api.crd(versions=("v1", "v2"))
    async with staged(api, embedded_server, tmp_path, own_crd=crd) as stage:
        first = await stage.going("a")
        await stage.work()
        await stage.until_done(first)
        asked = {one.path.split("/")[3] for one in stage.front.asked if one.path.endswith("/a")}
        assert len(asked) == 1
        (known,) = asked
        stage.make("b")
        other = "v1" if known == "v2" else "v2"
        versions = crd.definition()["spec"]["versions"]  # type: ignore[index]
        for version in versions:
            version["served"] = version["name"] == other
        api.kube.patch(crd.own_path, {"spec": {"versions": versions}})
        path = stage.path("b").replace("/v1/", f"/{other}/")
        gone = stage.path("b").replace("/v1/", f"/{known}/")
        wait_until("only the other version is served", lambda: api.kube.request("GET", gone).status == 404)
        wait_until("the other version is served", lambda: api.kube.request("GET", path).status == 200)
        api.kube.delete(path)
        second = stage.event(api.kube.get(path) or {})
        await stage.publish(second)
        await stage.until_done(second)
        assert not stage.there("b")
        assert api.kube.get(path) is None


# ---- forged


async def test_an_event_for_an_object_that_never_existed_touches_nothing(stage: Stage) -> None:
    found = stage.make("w")
    await stage.publish(one := stage.event(found, uid="00000000-0000-0000-0000-000000000000", name="ghost"))
    await stage.work()
    await stage.until_held(one, f"there is no {stage.crd.resource} {stage.namespace}/ghost")
    assert stage.deletes == 0
    assert stage.there("w")


@pytest.mark.invariant(8)
async def test_an_event_for_a_live_object_touches_nothing(stage: Stage) -> None:
    found = stage.make("w")
    await stage.publish(one := stage.event(found))
    await stage.work()
    await stage.until_held(one, "lives: it has no deletionTimestamp")
    assert stage.deletes == 0
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]


async def test_an_event_for_another_uid_touches_nothing(stage: Stage) -> None:
    stage.make("w")
    found = stage.delete("w")
    await stage.publish(one := stage.event(found, uid="11111111-0000-0000-0000-000000000000"))
    await stage.work()
    await stage.until_held(one, f"has uid {found['metadata']['uid']}")
    assert stage.deletes == 0
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]


async def test_an_event_for_an_object_without_our_finalizer_touches_nothing(stage: Stage) -> None:
    stage.make("w", finalizers=["example.com/other"])
    await stage.publish(one := stage.event(stage.delete("w")))
    await stage.work()
    await stage.until_held(one, "does not have our finalizer")
    assert stage.deletes == 0
    assert stage.read("w")["metadata"]["finalizers"] == ["example.com/other"]


@pytest.mark.invariant(8)
async def test_an_event_of_another_cluster_touches_nothing(stage: Stage) -> None:
    stage.make("w")
    found = stage.delete("w")
    await stage.publish(one := stage.event(found, cluster="22222222-0000-0000-0000-000000000000"))
    await stage.work()
    await stage.until_held(one, f"has uid {stage.identity}, and this is about cluster 2222")
    assert stage.deletes == 0
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]


async def test_a_name_that_leads_to_another_cluster_than_ever_touches_nothing(stage: Stage) -> None:
    one = await stage.going("w")
    await stage.client.hset(stage.installation.keys.of(0, "clusters"), "local", "the-one-before")
    await stage.work()
    await stage.until_held(one, "has always had uid the-one-before")
    assert stage.deletes == 0


async def test_a_name_that_leads_to_a_cluster_of_another_name_touches_nothing(stage: Stage) -> None:
    clusters = {**stage.settings.clusters, "other": ClusterSettings(in_cluster=True)}
    stage.settings = msgspec.structs.replace(stage.settings, clusters=clusters)
    one = await stage.going("w")
    await stage.client.hset(stage.installation.keys.of(0, "clusters"), "other", stage.identity)
    await stage.work()
    await stage.until_held(one, "clusters other and local are the same cluster")
    assert stage.deletes == 0


async def test_an_event_of_an_undeclared_source_or_about_another_kind_touches_nothing(stage: Stage) -> None:
    stage.make("w")
    found = stage.delete("w")
    unknown, other = stage.event(found, source="nobody"), stage.event(found, resource="pods", uid="u")
    await stage.publish(unknown, other)
    await stage.work()
    await stage.until_held(unknown, "no planner for source 'nobody'")
    await stage.until_held(other, f"source {SOURCE} is about {stage.crd.resource}, not about pods")
    assert stage.deletes == 0


# ---- policy


@pytest.mark.invariant(10)
async def test_retain_keeps_the_resources_and_releases_the_object(stage: Stage) -> None:
    one = await stage.going("w", annotations={"knell.dev/deletion-policy": "Retain"})
    await stage.work()
    await stage.until_done(one)
    assert stage.read("w") is None
    assert stage.there("w")
    assert stage.deletes == 0
    why = "retain: annotation knell.dev/deletion-policy of the object says 'Retain'"
    assert (await stage.deletion(one))["policy"] == why
    decisions = [entry for entry in await stage.audit("decision") if entry["what"] == "policy"]
    assert [(entry["id"], entry["why"]) for entry in decisions] == [(one.deletion, why)]


async def test_retain_on_the_live_namespace_counts(stage: Stage) -> None:
    stage.annotate_namespace(**{"services.k8s.aws/deletion-policy": "retain"})
    one = await stage.going("w")
    await stage.work()
    await stage.until_done(one)
    assert stage.there("w")


async def test_an_object_that_opted_out_is_released_without_a_deletion(stage: Stage) -> None:
    one = await stage.going("w", annotations={"knell.dev/gc": "disabled"})
    await stage.work()
    await stage.until_done(one)
    assert stage.read("w") is None
    assert stage.there("w")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"opt_in": "team=ours"}, "don't fit its source's opt_in"),
        ({"selector": "team=ours"}, "don't fit its source's selector"),
        ({"namespaces": ("elsewhere",)}, "is not about namespace"),
    ],
)
async def test_an_object_that_left_the_scope_by_a_setting_is_held_and_not_released(
    stage: Stage, changed: dict[str, object], words: str
) -> None:
    stage.source(**changed)
    one = await stage.going("w")
    await stage.work()
    await stage.until_held(one, words, "not released by that")
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]
    assert stage.deletes == 0


LEFT = pytest.mark.parametrize(
    "changed", [{"opt_in": "team=ours"}, {"opt_out": "!team"}, {"selector": "team=ours"}, {"namespaces": ("else",)}]
)


@LEFT
@pytest.mark.parametrize("mark", [{"knell.dev/gc": "disabled"}, {"services.k8s.aws/deletion-policy": "Retain"}])
async def test_an_object_that_left_the_scope_goes_when_its_own_marks_say_so(
    stage: Stage, changed: dict[str, object], mark: dict[str, str]
) -> None:
    """Opted out, or retained: whoever wrote that wants it let go, and what it owns to stay."""
    stage.source(**changed)
    one = await stage.going("w")
    await stage.work()
    await stage.until_held(one, "not released by that")
    stage.annotate("w", **mark)
    await stage.until_done(one)
    assert stage.read("w") is None
    assert stage.there("w")
    assert stage.deletes == 0


@LEFT
async def test_an_object_that_left_the_scope_is_not_let_go_by_a_setting_that_says_retain(
    stage: Stage, changed: dict[str, object]
) -> None:
    stage.source(deletion_policy="retain", **changed)
    one = await stage.going("w")
    await stage.work()
    await stage.until_held(one, "not released by that")
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]


@LEFT
@pytest.mark.parametrize("mark", ["knell.dev/prevent-delete", "knell.dev/dry-run"])
async def test_an_object_that_left_the_scope_and_is_retained_is_held_by_what_holds_any_other(
    stage: Stage, changed: dict[str, object], mark: str
) -> None:
    stage.source(**changed)
    one = await stage.going("w", annotations={"knell.dev/deletion-policy": "retain", mark: "true"})
    await stage.work()
    await stage.until_held(one)
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]
    stage.annotate("w", **{mark: None})
    await stage.until_done(one)
    assert stage.there("w")


@pytest.mark.invariant(7)
async def test_an_unknown_policy_value_holds_until_it_is_mended(stage: Stage) -> None:
    one = await stage.going("w", annotations={"knell.dev/deletion-policy": "remove"})
    await stage.work()
    await stage.until_held(one, "knell.dev/deletion-policy", "'remove'", "allowed: delete, retain")
    assert stage.deletes == 0
    stage.annotate("w", **{"knell.dev/deletion-policy": "delete"})
    await stage.until_done(one)
    assert not stage.there("w")


async def test_a_protected_object_is_held(stage: Stage) -> None:
    one = await stage.going("w", annotations={"knell.dev/prevent-delete": "true"})
    await stage.work()
    await stage.until_held(one, "protected: annotation knell.dev/prevent-delete of the object says 'true'")
    assert stage.there("w")
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.parametrize("level", ["source", "everything"])
async def test_a_pause_holds(stage: Stage, level: str) -> None:
    if level == "source":
        stage.source(paused=True)
    else:
        stage.settings = msgspec.structs.replace(stage.settings, policy=PolicySettings(paused=True))
    one = await stage.going("w")
    await stage.work()
    await stage.until_held(one, "paused:")
    assert stage.there("w")


@pytest.mark.parametrize("level", ["object", "namespace", "source", "controller"])
async def test_a_dry_run_says_what_it_would_remove_and_removes_nothing(stage: Stage, level: str) -> None:
    annotations = {}
    match level:
        case "object":
            annotations = {"knell.dev/dry-run": "true"}
        case "namespace":
            stage.annotate_namespace(**{"knell.dev/dry-run": "true"})
        case "source":
            stage.source(dry_run=True)
        case "controller":
            stage.settings = msgspec.structs.replace(stage.settings, policy=PolicySettings(dry_run=True))
    one = await stage.going("w", 2, annotations=annotations)
    await stage.work()
    await stage.until_held(one, "dry-run: would remove 2 resources: simulated w-0, simulated w-1")
    assert stage.deletes == 0
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]


async def test_the_guard_holds_what_is_too_much(stage: Stage) -> None:
    stage.source(guard=GuardSettings(most=2))
    events = [await stage.going(f"w{number}") for number in range(4)]
    await stage.work()

    async def settled() -> bool:
        return sorted([await stage.state(one) or "" for one in events]) == ["done", "done", "held", "held"]

    await stage.until("two are done and two are held", settled)
    held = [one for one in events if await stage.state(one) == "held"]
    for one in held:
        await stage.until_held(one, "guard: more than 2 deletions of source widgets")
    assert stage.deletes == 2


# ---- what can't be found out


async def test_a_cluster_that_is_not_reached_holds_until_it_is(stage: Stage) -> None:
    one = await stage.going("w")
    clusters = dict[str, object]()
    await stage.work(clusters)  # type: ignore[arg-type]
    await stage.until_held(one, "no way to the cluster")
    clusters["local"] = stage.cluster
    await stage.until_done(one)
    assert not stage.there("w")


@pytest.mark.parametrize("status", [0, 403, 500])
async def test_a_cluster_that_gives_no_answer_holds_until_it_does(stage: Stage, status: int) -> None:
    one = await stage.going("w")
    stage.front.refuse(status)
    await stage.work()
    await stage.until_held(one, "its cluster can't be asked:")
    assert stage.deletes == 0
    stage.front.pass_on()
    await stage.until_done(one)
    assert not stage.there("w")


async def test_a_spec_that_names_no_targets_in_the_right_way_holds(stage: Stage) -> None:
    stage.make("w")
    stage.api.kube.patch(stage.path("w"), {"spec": {"targets": "many"}})
    await stage.publish(one := stage.event(stage.delete("w")))
    await stage.work()
    await stage.until_held(one, "does not name its targets")
    assert stage.deletes == 0
