"""`knell uninstall`: everything of ours goes from a cluster, nothing else does, and nothing without being asked."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from service.contract.names import FINALIZER
from service.engine.installation import Installation
from service.engine.witnesses import Witnesses
from service.kubernetes import connect
from service.settings import ClusterSettings
from service.watching.leaving import find_marked, take_off
from standins.ports import free_ports
from tests.clusters import TestApi
from tests.integration.declared import Declared, declare
from tests.integration.test_role import clear, grant, kubeconfig
from tests.integration.test_work_command import until, with_installation
from tests.servers import TestServer

OTHER = "example.com/other"


@pytest.fixture
def world(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> Declared:
    return declare(api, embedded_server, tmp_path)


def leases(world: Declared) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{world.home}/leases"


def sources(world: Declared) -> str:
    return f"/api/v1/namespaces/{world.home}/configmaps/knell-sources"


def add_lease(world: Declared, name: str, holder: str, renewed: datetime | None) -> None:
    spec: dict[str, Any] = {"holderIdentity": holder, "leaseDurationSeconds": 10}
    if renewed is not None:
        spec["renewTime"] = renewed.isoformat(timespec="microseconds").replace("+00:00", "Z")
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
    world.api.kube.create(leases(world), body)


def add_rest(world: Declared) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    add_lease(world, "knell-widgets-0", "somebody", long_ago)
    add_lease(world, "knell-widgets-3", "", long_ago)
    add_lease(world, "knell-widgets-sweep", "somebody", long_ago)
    add_lease(world, "other", "somebody", datetime.now(UTC))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knell-sources"}, "data": {"widgets": "x"}}
    world.api.kube.create(f"/api/v1/namespaces/{world.home}/configmaps", body)


def names(world: Declared) -> list[str]:
    found: Any = world.api.kube.get(leases(world))
    return [one["metadata"]["name"] for one in found["items"]]


def test_everything_of_ours_goes_and_nothing_else(world: Declared) -> None:
    elsewhere = world.api.namespace()
    world.create("a", finalizers=[FINALIZER, OTHER])
    world.create("b", labels={"app": "x"}, finalizers=[FINALIZER])
    world.create("c", finalizers=[OTHER])
    world.api.kube.create(world.crd.path(elsewhere), world.crd.body("d", finalizers=[FINALIZER]))
    world.create("e", finalizers=[FINALIZER])
    world.delete("e")
    add_rest(world)
    # Neither the selector nor the namespaces of the source matter.
    config = world.config(selector="app=x", namespaces=[world.namespace])
    answer = world.knell(config, "uninstall", "--yes", "--also-deleting", "--output", "json")
    assert answer.code == 0, answer.err
    (here,) = answer.json["clusters"]
    going = [{"object": f"{world.namespace}/e", "protected": ""}]
    assert here["resources"] == [{"resource": world.crd.resource, "marked": 4, "deleting": going, "note": ""}]
    assert world.get("a")["metadata"]["finalizers"] == [OTHER]
    assert world.get("c")["metadata"]["finalizers"] == [OTHER]
    assert not world.marked("b")
    assert world.get("e") is None
    other: Any = world.api.kube.get(world.crd.path(elsewhere, "d"))
    assert "finalizers" not in other["metadata"]
    assert names(world) == ["other"]
    assert world.api.kube.get(sources(world)) is None
    again = world.knell(config, "uninstall", "--yes")
    assert (again.code, "0 objects had our finalizer" in again.out) == (0, True)


@pytest.mark.parametrize(("words", "typed"), [(("--dry-run",), None), ((), "n\n")])
def test_a_preview_or_a_no_changes_nothing(world: Declared, words: tuple[str, ...], typed: str | None) -> None:
    world.create("a", finalizers=[FINALIZER])
    add_rest(world)
    answer = world.knell(world.config(), "uninstall", *words, answer=typed)
    assert answer.code == (0 if typed is None else 1)
    assert world.crd.resource in answer.out
    assert world.marked("a")
    assert len(names(world)) == 4
    assert world.api.kube.get(sources(world)) is not None


def test_a_running_replica_is_named_and_must_be_stopped_first(world: Declared) -> None:
    world.create("a", finalizers=[FINALIZER])
    add_lease(world, "knell-widgets-0", "replica-7", datetime.now(UTC))
    config = world.config()
    answer = world.knell(config, "uninstall", "--yes")
    assert (answer.code, "still running: replica-7" in answer.err) == (1, True)
    assert world.marked("a")
    anyway = world.knell(config, "uninstall", "--yes", "--anyway")
    assert anyway.code == 0, anyway.err
    assert not world.marked("a")


@pytest.mark.parametrize("renewed", ["now", "never", "sweep"])
def test_whoever_may_still_run_holds_it(world: Declared, renewed: str) -> None:
    world.create("a", finalizers=[FINALIZER])
    name = "knell-widgets-sweep" if renewed == "sweep" else "knell-widgets-0"
    add_lease(world, name, "replica-7", None if renewed == "never" else datetime.now(UTC))
    answer = world.knell(world.config(), "uninstall", "--yes")
    assert (answer.code, "still running: replica-7" in answer.err) == (1, True)
    assert world.marked("a")


# ---- what can't be read, and what the role grants


ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/{}"


@pytest.mark.invariant(7)
def test_leases_that_can_not_be_read_hold_everything(world: Declared) -> None:
    """Three replicas may run for all that anybody knows."""
    world.create("a", finalizers=[FINALIZER])
    world.create("b", finalizers=[FINALIZER])
    world.delete("b")
    add_lease(world, "knell-widgets-0", "replica-7", datetime.now(UTC))
    config = world.config("account")
    account = grant(world, config)
    world.api.kube.delete(ROLES.format(world.home, f"knell-{world.home}-uninstall"))
    here = {"kubeconfig": str(kubeconfig(world, account.token)), "context": "local"}
    try:
        until("it is granted", lambda: account.kube.request("GET", world.crd.path(world.namespace)).status == 200)
        until("it is taken away", lambda: account.kube.request("GET", leases(world)).status == 403)
        words = ("uninstall", "--yes", "--anyway", "--also-deleting")
        answer = world.knell(world.config(clusters={"here": here}), *words)
    finally:
        clear(world)
    assert answer.code == 1
    assert "nothing was changed, for this can't be read: Leases in" in answer.err
    assert 'cannot list resource "leases"' in answer.err
    assert "`knell role --cluster here | kubectl apply -f -` grants it" in answer.err
    assert world.marked("a")
    assert world.marked("b")
    assert names(world) == ["knell-widgets-0"]


@pytest.mark.invariant(7)
def test_objects_that_can_not_be_listed_hold_everything_else_as_well(world: Declared) -> None:
    world.create("a", finalizers=[FINALIZER])
    path = add_removed(world)
    account = grant(world, world.config("account"))
    here = {"kubeconfig": str(kubeconfig(world, account.token)), "context": "local"}
    try:
        until("it is granted", lambda: account.kube.request("GET", leases(world)).status == 200)
        words = ("uninstall", "--yes", "--resource", resource_in(path))
        answer = world.knell(world.config(clusters={"here": here}), *words)
    finally:
        clear(world)
    assert (answer.code, f"can't be read: {resource_in(path)} of cluster here" in answer.err) == (1, True)
    assert world.marked("a")


@pytest.mark.parametrize("confined", [False, True], ids=["every namespace", "one namespace"])
def test_the_role_suffices(world: Declared, confined: bool) -> None:
    changes: dict[str, Any] = {"namespaces": [world.namespace]} if confined else {}
    world.create("a", finalizers=[FINALIZER, OTHER])
    world.create("b", finalizers=[FINALIZER])
    world.delete("b")
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    add_lease(world, "knell-widgets-0", "somebody", long_ago)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knell-sources"}, "data": {"widgets": "x"}}
    world.api.kube.create(f"/api/v1/namespaces/{world.home}/configmaps", body)
    account = grant(world, world.config("account", **changes))
    here = {"kubeconfig": str(kubeconfig(world, account.token)), "context": "local"}
    try:
        until("it is granted", lambda: account.kube.request("GET", leases(world)).status == 200)
        until("it is granted", lambda: account.kube.request("GET", world.crd.path(world.namespace)).status == 200)
        config = world.config(clusters={"here": here}, **changes)
        answer = world.knell(config, "uninstall", "--yes", "--also-deleting", "--output", "json")
    finally:
        clear(world)
    assert answer.code == 0, answer.err
    (resource,) = answer.json["clusters"][0]["resources"]
    assert resource["note"] == (f"only namespaces {world.namespace} may be listed" if confined else "")
    assert world.get("a")["metadata"]["finalizers"] == [OTHER]
    assert world.get("b") is None
    assert names(world) == []
    assert world.api.kube.get(sources(world)) is None


def test_a_source_that_was_everywhere_once_can_not_be_looked_through_in_some_namespaces(world: Declared) -> None:
    world.create("a", finalizers=[FINALIZER])
    changes: dict[str, Any] = {"namespaces": [world.namespace]}
    remember(world, "widgets", world.crd.resource, namespaces='["*"]')
    account = grant(world, world.config("account", **changes))
    here = {"kubeconfig": str(kubeconfig(world, account.token)), "context": "local"}
    try:
        until("it is granted", lambda: account.kube.request("GET", leases(world)).status == 200)
        answer = world.knell(world.config(clusters={"here": here}, **changes), "uninstall", "--yes")
    finally:
        clear(world)
    assert (answer.code, f"can't be read: {world.crd.resource} of cluster here" in answer.err) == (1, True)
    assert world.marked("a")


# ---- objects that are being deleted


@pytest.mark.invariant(10)
def test_objects_that_are_being_deleted_are_named_and_need_a_word_of_their_own(world: Declared) -> None:
    world.create("lives", finalizers=[FINALIZER])
    world.create("goes", finalizers=[FINALIZER])
    world.create("kept", finalizers=[FINALIZER], annotations={"knell.dev/prevent-delete": "true"})
    world.create("unclear", finalizers=[FINALIZER], annotations={"knell.dev/prevent-delete": "perhaps"})
    for name in ("goes", "kept", "unclear"):
        world.delete(name)
    add_rest(world)
    answer = world.knell(world.config(), "uninstall", "--yes", "--output", "wide")
    assert (answer.code, "say --also-deleting" in answer.err) == (1, True)
    for text in (answer.out, answer.err):
        assert f"{world.namespace}/goes" in text
        assert f"{world.namespace}/kept" in text
        assert "annotation knell.dev/prevent-delete of the object says 'true'" in text
        assert "annotation knell.dev/prevent-delete of the object has the value 'perhaps'" in text
        assert f"{world.namespace}/lives" not in text
    assert all(world.marked(name) for name in ("lives", "goes", "kept", "unclear"))
    assert len(names(world)) == 4
    asked = world.knell(world.config(), "uninstall", "--also-deleting", answer="n\n")
    assert "4 objects, 3 of which are being deleted (2 protected)" in asked.err
    assert world.marked("kept")
    assert world.knell(world.config(), "uninstall", "--yes", "--also-deleting").code == 0
    assert world.get("kept") is None
    assert not world.marked("lives")


def test_a_namespace_protects_what_is_being_deleted_in_it(world: Declared) -> None:
    world.create("kept", finalizers=[FINALIZER])
    world.delete("kept")
    body = {"metadata": {"annotations": {"knell.dev/prevent-delete": "true"}}}
    world.api.kube.patch(f"/api/v1/namespaces/{world.namespace}", body)
    answer = world.knell(world.config(), "uninstall", "--dry-run", "--output", "json")
    (going,) = answer.json["clusters"][0]["resources"][0]["deleting"]
    assert going["protected"] == "annotation knell.dev/prevent-delete of its Namespace says 'true'"


async def test_what_began_to_be_deleted_after_the_preview_is_left_to_the_service(world: Declared) -> None:
    world.create("a", finalizers=[FINALIZER])
    settings = ClusterSettings(kubeconfig=world.api.kubeconfig(world.folder / "direct"))
    async with await connect("here", settings) as cluster:
        found = await find_marked(cluster, world.crd.resource, ())
        world.delete("a")
        assert found.served is not None
        (failure,) = await take_off(cluster, found.served, found.objects, lambda: None, also_deleting=False)
        assert "being deleted by now" in failure.why
        assert world.marked("a")
        assert await take_off(cluster, found.served, found.objects, lambda: None, also_deleting=True) == []
    assert world.get("a") is None


def test_a_later_installation_does_not_take_the_missing_leases_for_a_restored_backup(world: Declared) -> None:
    add_rest(world)
    namespace: Any = world.api.kube.get("/api/v1/namespaces/kube-system")
    uid, lease, other = namespace["metadata"]["uid"], f"{world.home}/knell-widgets-0", f"{world.home}/other"

    async def note(installation: Installation) -> None:
        for one in (lease, other):
            await Witnesses(installation).note(uid, one, "its-uid", 7)

    async def noted(installation: Installation) -> list[str]:
        return list((await Witnesses(installation).look(uid, [lease, other])).noted)

    with_installation(world.redis, note)
    assert world.knell(world.config(), "uninstall", "--yes").code == 0
    assert with_installation(world.redis, noted) == [other]


def test_a_resource_that_is_not_installed_has_nothing_of_ours(world: Declared) -> None:
    world.create("a", finalizers=[FINALIZER])
    sources = {
        "widgets": {"resource": world.crd.resource, "collector": "none"},
        "absent": {"resource": "gadgets.nowhere.test", "collector": "none"},
    }
    answer = world.knell(world.config(sources=sources), "uninstall", "--yes")
    assert answer.code == 0, answer.err
    assert "not installed" in answer.out
    assert not world.marked("a")


def test_what_can_not_be_done_is_said_and_can_be_done_later(world: Declared) -> None:
    world.create("a", finalizers=[FINALIZER])
    add_rest(world)
    # May read, but not change: what an observed source needs.
    config = world.config("observed", mode="observe")
    account = grant(world, config)
    here = {"kubeconfig": str(kubeconfig(world, account.token)), "context": "local"}
    try:
        until("it is granted", lambda: account.kube.request("GET", world.crd.path(world.namespace)).status == 200)
        answer = world.knell(world.config(clusters={"here": here}), "uninstall", "--yes", "--output", "wide")
    finally:
        clear(world)
    assert answer.code == 1
    assert f"{world.crd.resource} {world.namespace}/a" in answer.out
    assert "could not be done" in answer.err
    assert world.marked("a")
    # What is needed to begin again is still there.
    assert world.api.kube.get(sources(world)) is not None
    assert world.knell(world.config(), "uninstall", "--yes").code == 0
    assert not world.marked("a")


def test_another_cluster_under_the_same_name_is_refused(world: Declared) -> None:
    world.create("a", finalizers=[FINALIZER])
    here = {"kubeconfig": str(world.api.kubeconfig(world.folder / "wrong")), "context": "local", "uid": "another"}
    answer = world.knell(world.config(clusters={"here": here}), "uninstall", "--yes")
    assert answer.code == 1
    assert "should have uid another by clusters.here.uid" in answer.err
    assert world.marked("a")


# ---- sources that were removed from the settings


def remember(world: Declared, source: str, resource: str, cluster_uid: str = "", **facts: str) -> None:
    """As a list of that source leaves it in Redis."""
    found: Any = world.api.kube.get("/api/v1/namespaces/kube-system")
    uid = str(found["metadata"]["uid"])

    async def write(installation: Installation) -> None:
        keys, caller = installation.keys, installation.caller
        known = {"cluster": cluster_uid or uid, "resource": resource, "listed_at": "1", **facts}
        for field, value in known.items():
            await caller.command("HSET", keys.of(0, f"source:{source}"), field, value)
        await caller.command("HSET", keys.of(0, "clusters"), "here", uid)

    with_installation(world.redis, write)


def add_removed(world: Declared) -> str:
    """An object of a resource that no source is about, with our finalizer; its path."""
    crd = world.api.crd()
    path = crd.path(world.namespace, "left")
    world.api.kube.create(crd.path(world.namespace), crd.body("left", finalizers=[FINALIZER, OTHER]))
    return path


def finalizers(world: Declared, path: str) -> list[str]:
    found: Any = world.api.kube.get(path)
    return list(found["metadata"].get("finalizers", []))


def resource_in(path: str) -> str:
    _, _, group, _, _, _, plural, _ = path.split("/")
    return f"{plural}.{group}"


@pytest.mark.parametrize("others", [True, False])
def test_what_a_removed_source_left_behind_goes_as_redis_remembers_it(world: Declared, others: bool) -> None:
    world.create("a", finalizers=[FINALIZER])
    path = add_removed(world)
    remember(world, "removed", resource_in(path))
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    add_lease(world, "knell-removed-0", "somebody", long_ago)
    config = world.config() if others else world.config(sources={})
    answer = world.knell(config, "uninstall", "--yes", "--output", "json")
    assert answer.code == 0, answer.err
    (here,) = answer.json["clusters"]
    assert {one["resource"]: one["marked"] for one in here["resources"]}[resource_in(path)] == 1
    assert finalizers(world, path) == [OTHER]
    assert world.marked("a") is not others
    assert names(world) == []


def test_what_a_source_was_about_before_is_gone_through(world: Declared) -> None:
    path = add_removed(world)
    remember(world, "widgets", resource_in(path))
    assert world.knell(world.config(), "uninstall", "--yes").code == 0
    assert finalizers(world, path) == [OTHER]


def test_what_is_remembered_of_another_cluster_is_not_looked_for_in_this_one(world: Declared) -> None:
    path = add_removed(world)
    remember(world, "removed", resource_in(path), cluster_uid="another")
    assert world.knell(world.config(), "uninstall", "--yes").code == 0
    assert finalizers(world, path) == [FINALIZER, OTHER]
    answer = world.knell(world.config(sources={}), "uninstall", "--yes")
    assert (answer.code, "--resource plural.group" in answer.err) == (2, True)


def test_a_resource_can_be_named_when_redis_is_lost(world: Declared) -> None:
    path, second = add_removed(world), add_removed(world)
    (port,) = free_ports(1)
    away = {"KNELL_REDIS_URL": f"redis://127.0.0.1:{port}"}
    config = world.config(sources={})
    words = ("uninstall", "--yes", "--resource", resource_in(path), "--resource", resource_in(second))
    answer = world.knell(config, *words, variables=away)
    assert answer.code == 0, answer.err
    assert "name them by --resource" in answer.err
    assert finalizers(world, path) == finalizers(world, second) == [OTHER]


def test_a_resource_that_can_not_be_one_is_refused(world: Declared) -> None:
    answer = world.knell(world.config(), "uninstall", "--yes", "--resource", "Widget/blue")
    assert answer.code == 2
    assert "'Widget/blue' given; allowed: plural.group" in answer.err
