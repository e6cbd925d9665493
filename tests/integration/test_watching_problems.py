"""Problems of a source: reported and retried, while other sources go on; no object counts as gone because of them."""

import copy
from typing import Any

import pytest

from service.contract.names import FINALIZER
from service.kubernetes import connect
from service.settings import ClusterSettings, SourceSettings
from tests.api_servers import TestApi
from tests.integration.watched_source import OTHER, WatchedSource
from tests.kube import Crd, wait_until


@pytest.mark.long  # a CRD goes at its own pace
async def test_a_crd_that_comes_later_is_watched_then_while_others_go_on(watched: WatchedSource, api: TestApi) -> None:
    absent = Crd(group="knell.test", plural=f"later{watched.namespace}s")
    waiting = await watched.start(name="later", resource=absent.resource, ready=False)
    await watched.until("it is in trouble", lambda: "not served" in waiting.source.problem)
    other = await watched.start()
    watched.create("one")
    await watched.until("the other goes on", lambda: watched.marked("one"))
    facts = await waiting.source.store.state()
    assert "not served" in facts["problem"]
    assert int(facts["problem_since"]) > 0
    assert not waiting.source.ready
    try:
        api.kube.install(absent)
        api.kube.create(absent.path(watched.namespace), absent.body("first"))
        path = absent.path(watched.namespace, "first")
        await watched.until("its object is marked", lambda: FINALIZER in watched.finalizers("first", path))

        async def recovered() -> bool:
            return waiting.source.problem == "" and "problem" not in await waiting.source.store.state()

        await watched.until("its trouble is over", recovered)
        assert other.source.problem == ""
        await waiting.stop()
        api.kube.patch(path, {"metadata": {"finalizers": []}})
    finally:
        api.kube.request("DELETE", absent.own_path)


async def test_a_forbidden_source_is_reported_and_goes_on_when_it_is_granted(
    watched: WatchedSource, api: TestApi, tmp_path: Any
) -> None:
    home = f"/api/v1/namespaces/{watched.namespace}"
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{watched.namespace}"
    api.kube.create(f"{home}/serviceaccounts", {"metadata": {"name": "poor"}})
    token = api.server.token_of(watched.namespace, "poor")  # type: ignore[attr-defined]
    path = api.server.kubeconfig(tmp_path / "poor", token=token)  # type: ignore[call-arg]
    async with await connect("poor", ClusterSettings(kubeconfig=path, context="local")) as poor:
        marking = {"widgets": SourceSettings(resource=watched.crd.resource, collector="none")}
        forbidden = await watched.start(name="poor", cluster=poor, ready=False, mode="observe", others=marking)
        await watched.until("it is in trouble", lambda: "forbidden" in forbidden.source.problem.lower())
        await watched.start()
        watched.create("one")
        await watched.until("the other goes on", lambda: watched.marked("one"))
        rules = [
            {"apiGroups": [watched.crd.group], "resources": [watched.crd.plural], "verbs": ["get", "list", "watch"]}
        ]
        api.kube.create(f"{rbac}/roles", {"metadata": {"name": "poor"}, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": "poor", "namespace": watched.namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "poor"}
        api.kube.create(
            f"{rbac}/rolebindings", {"metadata": {"name": "poor"}, "roleRef": reference, "subjects": [subject]}
        )
        # The CRD can't be read yet: what it says about absence is unknown, and so nothing is concluded.
        crds = {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get"]}
        whole = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{watched.namespace}"
        api.kube.create(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            {"metadata": {"name": watched.namespace}, "rules": [crds]},
        )
        binding = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{watched.namespace}"
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": watched.namespace}
        api.kube.create(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {"metadata": {"name": watched.namespace}, "roleRef": reference, "subjects": [subject]},
        )
        try:
            await watched.until("it is watched", lambda: forbidden.source.ready and not forbidden.source.problem)
        finally:
            await forbidden.stop()
            api.kube.delete(binding)
            api.kube.delete(whole)


async def test_a_forbidden_patch_is_reported_and_deletions_go_on(
    watched: WatchedSource, api: TestApi, tmp_path: Any
) -> None:
    watched.create("one", finalizers=[FINALIZER])
    home = f"/api/v1/namespaces/{watched.namespace}"
    api.kube.create(f"{home}/serviceaccounts", {"metadata": {"name": "reader"}})
    token = api.server.token_of(watched.namespace, "reader")  # type: ignore[attr-defined]
    path = api.server.kubeconfig(tmp_path / "reader", token=token)  # type: ignore[call-arg]
    rules = [
        {"apiGroups": [watched.crd.group], "resources": [watched.crd.plural], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
    ]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": watched.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": watched.namespace}
    named = {"metadata": {"name": watched.namespace}}
    api.kube.create(f"{rbac}/clusterroles", {**named, "rules": rules})
    api.kube.create(f"{rbac}/clusterrolebindings", {**named, "roleRef": reference, "subjects": [subject]})
    try:
        async with await connect("reader", ClusterSettings(kubeconfig=path, context="local")) as reader:
            running = await watched.start(cluster=reader)
            watched.create("two")
            await watched.until("it is reported", lambda: "forbidden" in running.source.problem.lower())
            watched.delete("one")
            await watched.until_published("one")
            rules[0]["verbs"].append("patch")
            api.kube.patch(f"{rbac}/clusterroles/{watched.namespace}", {"rules": rules})
            await watched.until("it is marked", lambda: watched.marked("two"))
            await watched.until("all is well", lambda: running.source.problem == "")
            await running.stop()
    finally:
        api.kube.delete(f"{rbac}/clusterrolebindings/{watched.namespace}")
        api.kube.delete(f"{rbac}/clusterroles/{watched.namespace}")


async def test_a_served_version_that_changes_is_discovered_again(watched: WatchedSource, api: TestApi) -> None:
    watched.create("one")
    running = await watched.start(mode="observe")
    definition: Any = copy.deepcopy(watched.crd.definition())
    first = definition["spec"]["versions"][0]
    definition["spec"]["versions"] = [
        {**first, "storage": True, "name": "v2"},
        {**first, "served": False, "storage": False},
    ]
    api.kube.patch(watched.crd.own_path, {"spec": definition["spec"]})
    moved = Crd(group=watched.crd.group, plural=watched.crd.plural, versions=("v2",))
    wait_until("v2 is served", lambda: api.kube.request("GET", moved.path(watched.namespace)).status == 200)
    api.kube.create(moved.path(watched.namespace), moved.body("two"))

    async def both() -> bool:
        return await watched.remembered() == {"one": "lives", "two": "lives"}

    await watched.until("the new one is seen", both)
    api.kube.delete(moved.path(watched.namespace, "one"))
    found = await watched.until_published("one")
    assert set(found) == {"one"}
    assert running.source.problem == ""


async def test_objects_that_can_t_be_converted_never_count_as_gone(watched: WatchedSource, api: TestApi) -> None:
    if api.kind != "real":
        pytest.skip("the embedded API converts nothing: run `make controlplane` once")
    watched.create("one")
    watched.create("two")
    first = await watched.start(mode="observe")
    await first.stop()
    definition: Any = copy.deepcopy(watched.crd.definition())
    version = definition["spec"]["versions"][0]
    definition["spec"]["versions"] = [{**version, "storage": False, "name": "v2"}, version]
    webhook = {"clientConfig": {"url": "https://127.0.0.1:1/convert"}, "conversionReviewVersions": ["v1"]}
    definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    api.kube.patch(watched.crd.own_path, {"spec": definition["spec"]})
    moved = Crd(group=watched.crd.group, plural=watched.crd.plural, versions=("v2",))
    # A 500, or a 429 where the server can fill its cache from etcd in one go (etcd 3.6).
    wait_until(
        "v2 is asked for in vain",
        lambda: "conversion webhook" in str(api.kube.request("GET", moved.path(watched.namespace)).body),
    )
    running = await watched.start(mode="observe", ready=False)
    await watched.until("it is in trouble", lambda: running.source.problem)
    assert await watched.remembered() == {"one": "lives", "two": "lives"}
    assert await watched.deletions() == {}
    await running.stop()
    api.kube.patch(watched.crd.own_path, {"spec": {"conversion": {"strategy": "None", "webhook": None}}})


@pytest.mark.long  # a CRD goes at its own pace
async def test_a_crd_that_is_deleted_holds_its_objects_until_an_operator_confirms_it(
    watched: WatchedSource, api: TestApi
) -> None:
    running = await watched.start()
    watched.create("one")
    watched.create("two")
    await watched.until("both are marked", lambda: watched.marked("one") and watched.marked("two"))
    api.kube.delete(watched.crd.own_path)
    await watched.until("both are held", lambda: running.source.counters.held == 2)
    assert await watched.deletions() == {}
    facts = await watched.facts()
    assert facts[f"held@{watched.namespace}"] == "2"
    assert "being deleted" in facts[f"held_why@{watched.namespace}"]
    await watched.inventory.release_held()
    assert set(await watched.until_published("one", "two")) == {"one", "two"}


async def test_a_namespace_that_is_deleted_has_all_its_objects_published(watched: WatchedSource, api: TestApi) -> None:
    names = [f"w{number}" for number in range(6)]
    running = await watched.start()
    for name in names:
        watched.create(name)
    await watched.until("all are marked", lambda: all(watched.marked(name) for name in names))
    api.kube.delete(f"/api/v1/namespaces/{watched.namespace}")
    assert set(await watched.until_published(*names)) == set(names)
    assert all(watched.marked(name) for name in names)
    assert running.source.problem == ""
    assert running.source.counters.missed == 0


async def test_observed_objects_of_a_deleted_namespace_keep_its_marks(watched: WatchedSource, api: TestApi) -> None:
    marks = {"knell.dev/deletion-policy": "retain"}
    api.kube.patch(f"/api/v1/namespaces/{watched.namespace}", {"metadata": {"annotations": marks}})
    uid = watched.create("one")
    first = await watched.start(mode="observe")
    await first.stop()
    api.kube.delete(f"/api/v1/namespaces/{watched.namespace}")
    wait_until("it is gone", lambda: api.kube.get(f"/api/v1/namespaces/{watched.namespace}") is None)
    await watched.start(mode="observe")
    await watched.until_published("one")
    record = await watched.inventory.get(uid)
    assert record is not None
    assert record.namespace_annotations == marks


async def test_the_finalizers_of_others_are_left_alone_by_everything(watched: WatchedSource) -> None:
    running = await watched.start()
    watched.create("one", finalizers=[OTHER])
    await watched.until("it is marked", lambda: watched.marked("one"))
    watched.delete("one")
    await watched.until_published("one")
    await watched.until_listed_again(running)
    assert watched.finalizers("one") == [OTHER, FINALIZER]


async def test_a_corrupted_key_is_a_problem_of_its_source_and_ends_nothing(watched: WatchedSource) -> None:
    running = await watched.start()
    key = watched.inventory.state_key
    await watched.installation.caller.command("DEL", key)
    await watched.installation.caller.command("SET", key, "spoiled")
    await watched.until("it is in trouble", lambda: "WRONGTYPE" in running.source.problem)
    assert not running.task.done()
    await watched.installation.caller.command("DEL", key)
    watched.create("one")
    await watched.until("it goes on", lambda: watched.marked("one"))
    await watched.until("all is well", lambda: running.source.problem == "")
