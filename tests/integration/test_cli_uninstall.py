"""`knell uninstall`: everything of ours goes from a cluster, nothing else does, and nothing without being asked."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from service.contract.names import FINALIZER
from service.local.ports import free_ports
from service.stream.installation import Installation
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


def add_lease(world: Declared, name: str, holder: str, renewed: datetime) -> None:
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 10,
        "renewTime": renewed.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
    world.api.kube.create(leases(world), body)


def add_rest(world: Declared) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    add_lease(world, "knell-widgets-0", "somebody", long_ago)
    add_lease(world, "knell-widgets-3", "", long_ago)
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
    answer = world.knell(config, "uninstall", "--yes", "--output", "json")
    assert answer.code == 0, answer.err
    (here,) = answer.json["clusters"]
    assert here["resources"] == [{"resource": world.crd.resource, "marked": 4, "going": 1, "note": ""}]
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
    assert len(names(world)) == 3
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
        answer = world.knell(world.config(clusters={"here": here}), "uninstall", "--yes")
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


def remember(world: Declared, source: str, resource: str, cluster_uid: str = "") -> None:
    """As a list of that source leaves it in Redis."""
    found: Any = world.api.kube.get("/api/v1/namespaces/kube-system")
    uid = str(found["metadata"]["uid"])

    async def write(installation: Installation) -> None:
        keys, caller = installation.keys, installation.caller
        known = {"cluster": cluster_uid or uid, "resource": resource, "listed_at": "1"}
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
