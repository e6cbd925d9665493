"""Planner: every event is a hint, and the live object, its Namespace and policy decide."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from service.contract.names import FINALIZER
from service.settings import ClusterSettings, GuardSettings, PolicySettings
from tests.api_servers import TestApi
from tests.integration.judged_source import SOURCE, JudgedSource, judged_source
from tests.kube import wait_until
from tests.redis_servers import TestServer


@pytest.fixture
async def judged(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[JudgedSource]:
    async with judged_source(api, embedded_server, tmp_path) as made:
        yield made


# ---- what is meant


async def test_an_object_that_goes_takes_its_resources_along_and_is_released(judged: JudgedSource) -> None:
    one = await judged.going("w", 3)
    await judged.work()
    await judged.until_done(one)
    assert judged.read("w") is None
    assert not any(judged.there("w", number) for number in range(3))
    assert judged.deletes == 3
    assert (await judged.deletion(one))["policy"].startswith("delete: the setting policy.deletion_policy says delete")


@pytest.mark.invariant(8)
async def test_the_targets_come_from_the_object_and_not_from_the_event(judged: JudgedSource) -> None:
    judged.make("w", 1)
    judged.make("other", 1)
    forged = '{"owner":"tag","targets":[{"account":"acct","id":"other-0"}]}'
    one = judged.event(judged.delete("w"), data=forged)
    await judged.publish(one)
    await judged.work()
    await judged.until_done(one)
    assert not judged.there("w")
    assert judged.there("other")


async def test_an_object_without_a_namespace_is_judged_by_itself(
    api: TestApi, embedded_server: TestServer, tmp_path: Path
) -> None:
    async with judged_source(api, embedded_server, tmp_path, own_crd=api.crd(scope="Cluster")) as judged:
        judged.namespace = ""
        one = await judged.going("w")
        held = await judged.going("p", annotations={"knell.dev/prevent-delete": "true"})
        await judged.work()
        await judged.until_done(one)
        await judged.until_held(held, "protected:")
        assert not judged.there("w")
        assert judged.there("p")


async def test_a_version_that_is_no_longer_served_is_discovered_anew(
    api: TestApi, embedded_server: TestServer, tmp_path: Path
) -> None:
    crd = api.crd(versions=("v1", "v2"))
    async with judged_source(api, embedded_server, tmp_path, own_crd=crd) as judged:
        first = await judged.going("a")
        await judged.work()
        await judged.until_done(first)
        asked = {one.path.split("/")[3] for one in judged.proxy.asked if one.path.endswith("/a")}
        assert len(asked) == 1
        (known,) = asked
        judged.make("b")
        other = "v1" if known == "v2" else "v2"
        versions = crd.definition()["spec"]["versions"]  # type: ignore[index]
        for version in versions:
            version["served"] = version["name"] == other
        api.kube.patch(crd.own_path, {"spec": {"versions": versions}})
        path = judged.path("b").replace("/v1/", f"/{other}/")
        gone = judged.path("b").replace("/v1/", f"/{known}/")
        wait_until("only the other version is served", lambda: api.kube.request("GET", gone).status == 404)
        wait_until("the other version is served", lambda: api.kube.request("GET", path).status == 200)
        api.kube.delete(path)
        second = judged.event(api.kube.get(path) or {})
        await judged.publish(second)
        await judged.until_done(second)
        assert not judged.there("b")
        assert api.kube.get(path) is None


# ---- forged


async def test_an_event_for_an_object_that_never_existed_touches_nothing(judged: JudgedSource) -> None:
    found = judged.make("w")
    await judged.publish(one := judged.event(found, uid="00000000-0000-0000-0000-000000000000", name="ghost"))
    await judged.work()
    await judged.until_held(one, f"there is no {judged.crd.resource} {judged.namespace}/ghost")
    assert judged.deletes == 0
    assert judged.there("w")


@pytest.mark.invariant(8)
async def test_an_event_for_a_live_object_touches_nothing(judged: JudgedSource) -> None:
    found = judged.make("w")
    await judged.publish(one := judged.event(found))
    await judged.work()
    await judged.until_held(one, "lives: it has no deletionTimestamp")
    assert judged.deletes == 0
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]


async def test_an_event_for_another_uid_touches_nothing(judged: JudgedSource) -> None:
    judged.make("w")
    found = judged.delete("w")
    await judged.publish(one := judged.event(found, uid="11111111-0000-0000-0000-000000000000"))
    await judged.work()
    await judged.until_held(one, f"has uid {found['metadata']['uid']}")
    assert judged.deletes == 0
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]


async def test_an_event_for_an_object_without_our_finalizer_touches_nothing(judged: JudgedSource) -> None:
    judged.make("w", finalizers=["example.com/other"])
    await judged.publish(one := judged.event(judged.delete("w")))
    await judged.work()
    await judged.until_held(one, "does not have our finalizer")
    assert judged.deletes == 0
    assert judged.read("w")["metadata"]["finalizers"] == ["example.com/other"]


@pytest.mark.invariant(8)
async def test_an_event_of_another_cluster_touches_nothing(judged: JudgedSource) -> None:
    judged.make("w")
    found = judged.delete("w")
    await judged.publish(one := judged.event(found, cluster="22222222-0000-0000-0000-000000000000"))
    await judged.work()
    await judged.until_held(one, f"has uid {judged.identity}, and this is about cluster 2222")
    assert judged.deletes == 0
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]


async def test_a_name_that_leads_to_another_cluster_than_ever_touches_nothing(judged: JudgedSource) -> None:
    one = await judged.going("w")
    await judged.client.hset(judged.installation.keys.of(0, "clusters"), "local", "the-one-before")
    await judged.work()
    await judged.until_held(one, "has always had uid the-one-before")
    assert judged.deletes == 0


async def test_a_name_that_leads_to_a_cluster_of_another_name_touches_nothing(judged: JudgedSource) -> None:
    clusters = {**judged.settings.clusters, "other": ClusterSettings(in_cluster=True)}
    judged.settings = msgspec.structs.replace(judged.settings, clusters=clusters)
    one = await judged.going("w")
    await judged.client.hset(judged.installation.keys.of(0, "clusters"), "other", judged.identity)
    await judged.work()
    await judged.until_held(one, "clusters other and local are the same cluster")
    assert judged.deletes == 0


async def test_an_event_of_an_undeclared_source_or_about_another_kind_touches_nothing(judged: JudgedSource) -> None:
    judged.make("w")
    found = judged.delete("w")
    unknown, other = judged.event(found, source="nobody"), judged.event(found, resource="pods", uid="u")
    await judged.publish(unknown, other)
    await judged.work()
    await judged.until_held(unknown, "no planner for source 'nobody'")
    await judged.until_held(other, f"source {SOURCE} is about {judged.crd.resource}, not about pods")
    assert judged.deletes == 0


# ---- policy


@pytest.mark.invariant(10)
async def test_retain_keeps_the_resources_and_releases_the_object(judged: JudgedSource) -> None:
    one = await judged.going("w", annotations={"knell.dev/deletion-policy": "Retain"})
    await judged.work()
    await judged.until_done(one)
    assert judged.read("w") is None
    assert judged.there("w")
    assert judged.deletes == 0
    why = "retain: annotation knell.dev/deletion-policy of the object says 'Retain'"
    assert (await judged.deletion(one))["policy"] == why
    decisions = [entry for entry in await judged.audit("decision") if entry["what"] == "policy"]
    assert [(entry["id"], entry["why"]) for entry in decisions] == [(one.deletion, why)]


async def test_retain_on_the_live_namespace_counts(judged: JudgedSource) -> None:
    judged.annotate_namespace(**{"services.k8s.aws/deletion-policy": "retain"})
    one = await judged.going("w")
    await judged.work()
    await judged.until_done(one)
    assert judged.there("w")


async def test_an_object_that_opted_out_is_released_without_a_deletion(judged: JudgedSource) -> None:
    one = await judged.going("w", annotations={"knell.dev/gc": "disabled"})
    await judged.work()
    await judged.until_done(one)
    assert judged.read("w") is None
    assert judged.there("w")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"opt_in": "team=ours"}, "don't fit its source's opt_in"),
        ({"selector": "team=ours"}, "don't fit its source's selector"),
        ({"namespaces": ("elsewhere",)}, "is not about namespace"),
    ],
)
async def test_an_object_that_left_the_scope_by_a_setting_is_held_and_not_released(
    judged: JudgedSource, changed: dict[str, object], words: str
) -> None:
    judged.source(**changed)
    one = await judged.going("w")
    await judged.work()
    await judged.until_held(one, words, "not released by that")
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]
    assert judged.deletes == 0


LEFT = pytest.mark.parametrize(
    "changed", [{"opt_in": "team=ours"}, {"opt_out": "!team"}, {"selector": "team=ours"}, {"namespaces": ("else",)}]
)


@LEFT
@pytest.mark.parametrize("mark", [{"knell.dev/gc": "disabled"}, {"services.k8s.aws/deletion-policy": "Retain"}])
async def test_an_object_that_left_the_scope_goes_when_its_own_marks_say_so(
    judged: JudgedSource, changed: dict[str, object], mark: dict[str, str]
) -> None:
    """Opted out, or retained: whoever wrote that wants it let go, and what it owns to stay."""
    judged.source(**changed)
    one = await judged.going("w")
    await judged.work()
    await judged.until_held(one, "not released by that")
    judged.annotate("w", **mark)
    await judged.until_done(one)
    assert judged.read("w") is None
    assert judged.there("w")
    assert judged.deletes == 0


@LEFT
async def test_an_object_that_left_the_scope_is_not_released_by_a_setting_that_says_retain(
    judged: JudgedSource, changed: dict[str, object]
) -> None:
    judged.source(deletion_policy="retain", **changed)
    one = await judged.going("w")
    await judged.work()
    await judged.until_held(one, "not released by that")
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]


@LEFT
@pytest.mark.parametrize("mark", ["knell.dev/prevent-delete", "knell.dev/dry-run"])
async def test_an_object_that_left_the_scope_and_is_retained_is_held_by_what_holds_any_other(
    judged: JudgedSource, changed: dict[str, object], mark: str
) -> None:
    judged.source(**changed)
    one = await judged.going("w", annotations={"knell.dev/deletion-policy": "retain", mark: "true"})
    await judged.work()
    await judged.until_held(one)
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]
    judged.annotate("w", **{mark: None})
    await judged.until_done(one)
    assert judged.there("w")


@pytest.mark.invariant(7)
async def test_an_unknown_policy_value_holds_until_it_is_mended(judged: JudgedSource) -> None:
    one = await judged.going("w", annotations={"knell.dev/deletion-policy": "remove"})
    await judged.work()
    await judged.until_held(one, "knell.dev/deletion-policy", "'remove'", "allowed: delete, retain")
    assert judged.deletes == 0
    judged.annotate("w", **{"knell.dev/deletion-policy": "delete"})
    await judged.until_done(one)
    assert not judged.there("w")


async def test_a_protected_object_is_held(judged: JudgedSource) -> None:
    one = await judged.going("w", annotations={"knell.dev/prevent-delete": "true"})
    await judged.work()
    await judged.until_held(one, "protected: annotation knell.dev/prevent-delete of the object says 'true'")
    assert judged.there("w")
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.parametrize("level", ["source", "everything"])
async def test_a_pause_holds(judged: JudgedSource, level: str) -> None:
    if level == "source":
        judged.source(paused=True)
    else:
        judged.settings = msgspec.structs.replace(judged.settings, policy=PolicySettings(paused=True))
    one = await judged.going("w")
    await judged.work()
    await judged.until_held(one, "paused:")
    assert judged.there("w")


@pytest.mark.parametrize("level", ["object", "namespace", "source", "controller"])
async def test_a_dry_run_says_what_it_would_remove_and_removes_nothing(judged: JudgedSource, level: str) -> None:
    annotations = {}
    match level:
        case "object":
            annotations = {"knell.dev/dry-run": "true"}
        case "namespace":
            judged.annotate_namespace(**{"knell.dev/dry-run": "true"})
        case "source":
            judged.source(dry_run=True)
        case "controller":
            judged.settings = msgspec.structs.replace(judged.settings, policy=PolicySettings(dry_run=True))
    one = await judged.going("w", 2, annotations=annotations)
    await judged.work()
    await judged.until_held(one, "dry-run: would remove 2 resources: simulated w-0, simulated w-1")
    assert judged.deletes == 0
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]


async def test_the_guard_holds_what_is_too_much(judged: JudgedSource) -> None:
    judged.source(guard=GuardSettings(most=2))
    events = [await judged.going(f"w{number}") for number in range(4)]
    await judged.work()

    async def settled() -> bool:
        return sorted([await judged.state(one) or "" for one in events]) == ["done", "done", "held", "held"]

    await judged.until("two are done and two are held", settled)
    held = [one for one in events if await judged.state(one) == "held"]
    for one in held:
        await judged.until_held(one, "guard: more than 2 deletions of source widgets")
    assert judged.deletes == 2


# ---- what can't be found out


async def test_a_cluster_that_is_not_reached_holds_until_it_is(judged: JudgedSource) -> None:
    one = await judged.going("w")
    clusters = dict[str, object]()
    await judged.work(clusters)  # type: ignore[arg-type]
    await judged.until_held(one, "no way to the cluster")
    clusters["local"] = judged.cluster
    await judged.until_done(one)
    assert not judged.there("w")


@pytest.mark.parametrize("status", [0, 403, 500])
async def test_a_cluster_that_gives_no_answer_holds_until_it_does(judged: JudgedSource, status: int) -> None:
    one = await judged.going("w")
    judged.proxy.refuse(status)
    await judged.work()
    await judged.until_held(one, "its cluster can't be asked:")
    assert judged.deletes == 0
    judged.proxy.pass_on()
    await judged.until_done(one)
    assert not judged.there("w")


async def test_a_spec_that_names_no_targets_in_the_right_way_holds(judged: JudgedSource) -> None:
    judged.make("w")
    judged.api.kube.patch(judged.path("w"), {"spec": {"targets": "many"}})
    await judged.publish(one := judged.event(judged.delete("w")))
    await judged.work()
    await judged.until_held(one, "does not name its targets")
    assert judged.deletes == 0
