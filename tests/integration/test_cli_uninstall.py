"""`knell uninstall`: everything of ours is removed from a cluster, nothing else, and nothing without confirmation."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from service.admission.manifests import protection_manifests
from service.contract.names import FINALIZER
from service.engine.installation import Installation
from service.engine.lease_counters import LeaseCounterStore
from service.kubernetes import connect
from service.settings import ClusterSettings, load
from service.watching.uninstall import find_finalizers, remove_finalizers
from standins.ports import free_ports
from tests.api_servers import TestApi
from tests.integration.knell_process import until, with_installation
from tests.integration.test_cli_role import clear, grant, kubeconfig
from tests.integration.widget_source import WidgetSource, widget_source
from tests.recording_proxy import RecordingProxy
from tests.redis_servers import TestServer

OTHER = "example.com/other"


@pytest.fixture
def widgets(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> WidgetSource:
    return widget_source(api, embedded_server, tmp_path)


def leases(widgets: WidgetSource) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{widgets.home}/leases"


def sources(widgets: WidgetSource) -> str:
    return f"/api/v1/namespaces/{widgets.home}/configmaps/knell-sources"


def add_lease(widgets: WidgetSource, name: str, holder: str, renewed: datetime | None) -> None:
    spec: dict[str, Any] = {"holderIdentity": holder, "leaseDurationSeconds": 10}
    if renewed is not None:
        spec["renewTime"] = renewed.isoformat(timespec="microseconds").replace("+00:00", "Z")
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
    widgets.api.kube.create(leases(widgets), body)


def add_rest(widgets: WidgetSource) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    add_lease(widgets, "knell-widgets-0", "somebody", long_ago)
    add_lease(widgets, "knell-widgets-3", "", long_ago)
    add_lease(widgets, "knell-widgets-sweep", "somebody", long_ago)
    add_lease(widgets, "other", "somebody", datetime.now(UTC))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knell-sources"}, "data": {"widgets": "x"}}
    widgets.api.kube.create(f"/api/v1/namespaces/{widgets.home}/configmaps", body)


def names(widgets: WidgetSource) -> list[str]:
    found: Any = widgets.api.kube.get(leases(widgets))
    return [one["metadata"]["name"] for one in found["items"]]


def test_everything_of_ours_is_removed_and_nothing_else(widgets: WidgetSource) -> None:
    elsewhere = widgets.api.namespace()
    widgets.create("a", finalizers=[FINALIZER, OTHER])
    widgets.create("b", labels={"app": "x"}, finalizers=[FINALIZER])
    widgets.create("c", finalizers=[OTHER])
    widgets.api.kube.create(widgets.crd.path(elsewhere), widgets.crd.body("d", finalizers=[FINALIZER]))
    widgets.create("e", finalizers=[FINALIZER])
    widgets.delete("e")
    add_rest(widgets)
    # The selector and the namespaces of the source do not matter.
    config = widgets.config(selector="app=x", namespaces=[widgets.namespace])
    answer = widgets.knell(config, "uninstall", "--yes", "--also-deleting", "--output", "json")
    assert answer.code == 0, answer.err
    (here,) = answer.json["clusters"]
    going = [{"object": f"{widgets.namespace}/e", "protected": ""}]
    assert here["resources"] == [{"resource": widgets.crd.resource, "marked": 4, "deleting": going, "note": ""}]
    assert widgets.get("a")["metadata"]["finalizers"] == [OTHER]
    assert widgets.get("c")["metadata"]["finalizers"] == [OTHER]
    assert not widgets.marked("b")
    assert widgets.get("e") is None
    other: Any = widgets.api.kube.get(widgets.crd.path(elsewhere, "d"))
    assert "finalizers" not in other["metadata"]
    assert names(widgets) == ["other"]
    assert widgets.api.kube.get(sources(widgets)) is None
    again = widgets.knell(config, "uninstall", "--yes")
    assert (again.code, "0 objects had our finalizer" in again.out) == (0, True)


@pytest.mark.parametrize(("words", "typed"), [(("--dry-run",), None), ((), "n\n")])
def test_a_preview_or_a_no_changes_nothing(widgets: WidgetSource, words: tuple[str, ...], typed: str | None) -> None:
    widgets.create("a", finalizers=[FINALIZER])
    add_rest(widgets)
    answer = widgets.knell(widgets.config(), "uninstall", *words, answer=typed)
    assert answer.code == (0 if typed is None else 1)
    assert widgets.crd.resource in answer.out
    assert widgets.marked("a")
    assert len(names(widgets)) == 4
    assert widgets.api.kube.get(sources(widgets)) is not None


def test_a_running_replica_is_named_and_must_be_stopped_first(widgets: WidgetSource) -> None:
    widgets.create("a", finalizers=[FINALIZER])
    add_lease(widgets, "knell-widgets-0", "replica-7", datetime.now(UTC))
    config = widgets.config()
    answer = widgets.knell(config, "uninstall", "--yes")
    assert (answer.code, "still running: replica-7" in answer.err) == (1, True)
    assert widgets.marked("a")
    anyway = widgets.knell(config, "uninstall", "--yes", "--anyway")
    assert anyway.code == 0, anyway.err
    assert not widgets.marked("a")


@pytest.mark.parametrize("renewed", ["now", "never", "sweep"])
def test_a_replica_that_may_still_run_prevents_it(widgets: WidgetSource, renewed: str) -> None:
    widgets.create("a", finalizers=[FINALIZER])
    name = "knell-widgets-sweep" if renewed == "sweep" else "knell-widgets-0"
    add_lease(widgets, name, "replica-7", None if renewed == "never" else datetime.now(UTC))
    answer = widgets.knell(widgets.config(), "uninstall", "--yes")
    assert (answer.code, "still running: replica-7" in answer.err) == (1, True)
    assert widgets.marked("a")


# ---- protection at admission


ADMISSION = "/apis/admissionregistration.k8s.io/v1"
INSTALLED = {
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}


@pytest.fixture
def protection(widgets: WidgetSource) -> Iterator[list[str]]:
    """Everything that protection may have in a cluster, as paths."""
    config = widgets.config("protection", protection=PROTECTION)
    made = [one for one in protection_manifests(load(config, {}), "here") if one["kind"] in INSTALLED]
    paths = [f"{ADMISSION}/{INSTALLED[one['kind']]}/{one['metadata']['name']}" for one in made]
    for path, one in zip(paths, made, strict=True):
        widgets.api.kube.create(path.rpartition("/")[0], one)
    yield paths
    for path in paths:
        widgets.api.kube.request("DELETE", path)


# It covers no Namespace, because other tests delete theirs on the same server.
PROTECTION: dict[str, Any] = {
    "restrict_marks": True,
    "webhook": {"enabled": True, "url": "https://127.0.0.1:9", "namespaces": "knell.test/covered"},
}


@pytest.mark.parametrize("mentioned", [True, False])
def test_the_protection_at_admission_is_shown_and_removed(
    widgets: WidgetSource, protection: list[str], mentioned: bool
) -> None:
    """Also where the settings say nothing of it any more."""
    widgets.create("a", finalizers=[FINALIZER])
    config = widgets.config(protection=PROTECTION) if mentioned else widgets.config()
    preview = widgets.knell(config, "uninstall", "--dry-run")
    assert preview.code == 0, preview.err
    assert "Protection at admission: would be removed first" in preview.out
    shown = widgets.knell(config, "uninstall", "--dry-run", "-o", "json").json["clusters"][0]["admission"]
    assert len(shown) == len(protection) == 5
    assert all(widgets.api.kube.get(path) is not None for path in protection)
    answer = widgets.knell(config, "uninstall", "--yes")
    assert answer.code == 0, answer.err
    assert [path for path in protection if widgets.api.kube.get(path) is not None] == []
    assert not widgets.marked("a")


async def test_the_webhook_goes_first_and_the_finalizers_after_the_policies(
    widgets: WidgetSource, protection: list[str]
) -> None:
    widgets.create("a", finalizers=[FINALIZER])
    async with RecordingProxy(widgets.api) as proxy:
        here = {"kubeconfig": str(proxy.kubeconfig(widgets.folder / "proxy")), "context": "local"}
        answer = await asyncio.to_thread(widgets.knell, widgets.config(clusters={"here": here}), "uninstall", "--yes")
    assert answer.code == 0, answer.err
    changes = [one for one in proxy.asked if one.method != "GET"]
    kinds = [one.path.removeprefix(f"{ADMISSION}/").partition("/")[0] for one in changes[:5]]
    assert (
        kinds
        == [*INSTALLED.values()][:1]
        + [INSTALLED["ValidatingAdmissionPolicyBinding"]] * 2
        + [INSTALLED["ValidatingAdmissionPolicy"]] * 2
    )
    assert changes[5].path == widgets.crd.path(widgets.namespace, "a")


def test_what_has_our_name_but_not_our_label_is_left_alone(widgets: WidgetSource, protection: list[str]) -> None:
    theirs = next(path for path in protection if "/validatingadmissionpolicies/" in path)
    labels = {"app.kubernetes.io/part-of": "another"}
    widgets.api.kube.patch(theirs, {"metadata": {"labels": labels}})
    answer = widgets.knell(widgets.config(), "uninstall", "--yes")
    assert answer.code == 0, answer.err
    assert "without our label: would be left alone" in " ".join(answer.out.split())
    assert [path for path in protection if widgets.api.kube.get(path) is not None] == [theirs]


async def test_what_can_not_be_removed_is_counted(widgets: WidgetSource, protection: list[str]) -> None:
    add_rest(widgets)
    async with RecordingProxy(widgets.api) as proxy:
        proxy.refuse(500, lambda method, path: method == "DELETE" and "validatingwebhook" in path)
        here = {"kubeconfig": str(proxy.kubeconfig(widgets.folder / "proxy")), "context": "local"}
        answer = await asyncio.to_thread(widgets.knell, widgets.config(clusters={"here": here}), "uninstall", "--yes")
    assert answer.code == 1
    assert "1 could not be done" in answer.err
    assert "ValidatingWebhookConfiguration knell-protection" in " ".join(answer.out.split())
    left = [path for path in protection if widgets.api.kube.get(path) is not None]
    assert [path.split("/")[4] for path in left] == ["validatingwebhookconfigurations"]
    assert widgets.api.kube.get(sources(widgets)) is not None, "the command is run again"


def test_the_role_allows_the_removal_if_the_settings_use_protection(
    widgets: WidgetSource, protection: list[str]
) -> None:
    account = grant(widgets, widgets.config("admin", protection=PROTECTION))
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    config = widgets.config("account", clusters={"here": here}, protection=PROTECTION)
    try:
        until("it is granted", lambda: account.kube.request("GET", protection[0]).status == 200)
        answer = widgets.knell(config, "uninstall", "--yes")
    finally:
        clear(widgets)
    assert answer.code == 0, answer.err
    assert [path for path in protection if widgets.api.kube.get(path) is not None] == []


def test_without_the_right_to_look_an_installation_without_protection_is_uninstalled(widgets: WidgetSource) -> None:
    widgets.create("a", finalizers=[FINALIZER])
    account = grant(widgets, widgets.config("admin"))
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    try:
        until("it is granted", lambda: account.kube.request("GET", leases(widgets)).status == 200)
        answer = widgets.knell(widgets.config("account", clusters={"here": here}), "uninstall", "--yes")
    finally:
        clear(widgets)
    assert answer.code == 0, answer.err
    assert "are left in here is not known" in answer.err
    assert not widgets.marked("a")


# ---- missing permissions


ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/{}"


@pytest.mark.invariant(7)
def test_nothing_is_changed_if_leases_can_not_be_read(widgets: WidgetSource) -> None:
    """Without them it is not known whether replicas are running."""
    widgets.create("a", finalizers=[FINALIZER])
    widgets.create("b", finalizers=[FINALIZER])
    widgets.delete("b")
    add_lease(widgets, "knell-widgets-0", "replica-7", datetime.now(UTC))
    config = widgets.config("account")
    account = grant(widgets, config)
    widgets.api.kube.delete(ROLES.format(widgets.home, f"knell-{widgets.home}-uninstall"))
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    try:
        until("it is granted", lambda: account.kube.request("GET", widgets.crd.path(widgets.namespace)).status == 200)
        until("it is taken away", lambda: account.kube.request("GET", leases(widgets)).status == 403)
        words = ("uninstall", "--yes", "--anyway", "--also-deleting")
        answer = widgets.knell(widgets.config(clusters={"here": here}), *words)
    finally:
        clear(widgets)
    assert answer.code == 1
    assert "nothing was changed, for this can't be read: Leases in" in answer.err
    assert 'cannot list resource "leases"' in answer.err
    assert "`knell role --cluster here | kubectl apply -f -` grants it" in answer.err
    assert widgets.marked("a")
    assert widgets.marked("b")
    assert names(widgets) == ["knell-widgets-0"]


@pytest.mark.invariant(7)
def test_nothing_is_changed_if_objects_can_not_be_listed(widgets: WidgetSource) -> None:
    widgets.create("a", finalizers=[FINALIZER])
    path = add_removed(widgets)
    account = grant(widgets, widgets.config("account"))
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    try:
        until("it is granted", lambda: account.kube.request("GET", leases(widgets)).status == 200)
        words = ("uninstall", "--yes", "--resource", resource_in(path))
        answer = widgets.knell(widgets.config(clusters={"here": here}), *words)
    finally:
        clear(widgets)
    assert (answer.code, f"can't be read: {resource_in(path)} of cluster here" in answer.err) == (1, True)
    assert widgets.marked("a")


@pytest.mark.parametrize("confined", [False, True], ids=["every namespace", "one namespace"])
def test_the_role_suffices(widgets: WidgetSource, confined: bool) -> None:
    changes: dict[str, Any] = {"namespaces": [widgets.namespace]} if confined else {}
    widgets.create("a", finalizers=[FINALIZER, OTHER])
    widgets.create("b", finalizers=[FINALIZER])
    widgets.delete("b")
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    add_lease(widgets, "knell-widgets-0", "somebody", long_ago)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knell-sources"}, "data": {"widgets": "x"}}
    widgets.api.kube.create(f"/api/v1/namespaces/{widgets.home}/configmaps", body)
    account = grant(widgets, widgets.config("account", **changes))
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    try:
        until("it is granted", lambda: account.kube.request("GET", leases(widgets)).status == 200)
        until("it is granted", lambda: account.kube.request("GET", widgets.crd.path(widgets.namespace)).status == 200)
        config = widgets.config(clusters={"here": here}, **changes)
        answer = widgets.knell(config, "uninstall", "--yes", "--also-deleting", "--output", "json")
    finally:
        clear(widgets)
    assert answer.code == 0, answer.err
    (resource,) = answer.json["clusters"][0]["resources"]
    assert resource["note"] == (f"only namespaces {widgets.namespace} may be listed" if confined else "")
    assert widgets.get("a")["metadata"]["finalizers"] == [OTHER]
    assert widgets.get("b") is None
    assert names(widgets) == []
    assert widgets.api.kube.get(sources(widgets)) is None


def test_a_source_that_was_everywhere_once_can_not_be_looked_through_in_some_namespaces(widgets: WidgetSource) -> None:
    widgets.create("a", finalizers=[FINALIZER])
    changes: dict[str, Any] = {"namespaces": [widgets.namespace]}
    remember(widgets, "widgets", widgets.crd.resource, namespaces='["*"]')
    account = grant(widgets, widgets.config("account", **changes))
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    try:
        until("it is granted", lambda: account.kube.request("GET", leases(widgets)).status == 200)
        answer = widgets.knell(widgets.config(clusters={"here": here}, **changes), "uninstall", "--yes")
    finally:
        clear(widgets)
    assert (answer.code, f"can't be read: {widgets.crd.resource} of cluster here" in answer.err) == (1, True)
    assert widgets.marked("a")


# ---- objects that are being deleted


@pytest.mark.invariant(10)
def test_objects_that_are_being_deleted_are_named_and_need_their_own_option(widgets: WidgetSource) -> None:
    widgets.create("lives", finalizers=[FINALIZER])
    widgets.create("goes", finalizers=[FINALIZER])
    widgets.create("kept", finalizers=[FINALIZER], annotations={"knell.dev/prevent-delete": "true"})
    widgets.create("unclear", finalizers=[FINALIZER], annotations={"knell.dev/prevent-delete": "perhaps"})
    for name in ("goes", "kept", "unclear"):
        widgets.delete(name)
    add_rest(widgets)
    answer = widgets.knell(widgets.config(), "uninstall", "--yes", "--output", "wide")
    assert (answer.code, "say --also-deleting" in answer.err) == (1, True)
    for text in (answer.out, answer.err):
        assert f"{widgets.namespace}/goes" in text
        assert f"{widgets.namespace}/kept" in text
        assert "annotation knell.dev/prevent-delete of the object says 'true'" in text
        assert "annotation knell.dev/prevent-delete of the object has the value 'perhaps'" in text
        assert f"{widgets.namespace}/lives" not in text
    assert all(widgets.marked(name) for name in ("lives", "goes", "kept", "unclear"))
    assert len(names(widgets)) == 4
    asked = widgets.knell(widgets.config(), "uninstall", "--also-deleting", answer="n\n")
    assert "4 objects, 3 of which are being deleted (2 protected)" in asked.err
    assert widgets.marked("kept")
    assert widgets.knell(widgets.config(), "uninstall", "--yes", "--also-deleting").code == 0
    assert widgets.get("kept") is None
    assert not widgets.marked("lives")


def test_a_namespace_protects_what_is_being_deleted_in_it(widgets: WidgetSource) -> None:
    widgets.create("kept", finalizers=[FINALIZER])
    widgets.delete("kept")
    body = {"metadata": {"annotations": {"knell.dev/prevent-delete": "true"}}}
    widgets.api.kube.patch(f"/api/v1/namespaces/{widgets.namespace}", body)
    answer = widgets.knell(widgets.config(), "uninstall", "--dry-run", "--output", "json")
    (going,) = answer.json["clusters"][0]["resources"][0]["deleting"]
    assert going["protected"] == "annotation knell.dev/prevent-delete of its Namespace says 'true'"


async def test_an_object_that_is_deleted_after_the_preview_is_left_to_the_service(widgets: WidgetSource) -> None:
    widgets.create("a", finalizers=[FINALIZER])
    settings = ClusterSettings(kubeconfig=widgets.api.kubeconfig(widgets.folder / "direct"))
    async with await connect("here", settings) as cluster:
        found = await find_finalizers(cluster, widgets.crd.resource, ())
        widgets.delete("a")
        assert found.served is not None
        (failure,) = await remove_finalizers(cluster, found.served, found.objects, lambda: None, also_deleting=False)
        assert "being deleted by now" in failure.why
        assert widgets.marked("a")
        assert await remove_finalizers(cluster, found.served, found.objects, lambda: None, also_deleting=True) == []
    assert widgets.get("a") is None


def test_a_later_installation_does_not_take_the_missing_leases_for_a_restored_backup(widgets: WidgetSource) -> None:
    add_rest(widgets)
    namespace: Any = widgets.api.kube.get("/api/v1/namespaces/kube-system")
    uid, lease, other = namespace["metadata"]["uid"], f"{widgets.home}/knell-widgets-0", f"{widgets.home}/other"

    async def note(installation: Installation) -> None:
        for one in (lease, other):
            await LeaseCounterStore(installation).save(uid, one, "its-uid", 7)

    async def noted(installation: Installation) -> list[str]:
        return list((await LeaseCounterStore(installation).read(uid, [lease, other])).counters)

    with_installation(widgets.redis, note)
    assert widgets.knell(widgets.config(), "uninstall", "--yes").code == 0
    assert with_installation(widgets.redis, noted) == [other]


def test_a_resource_that_is_not_installed_has_nothing_of_ours(widgets: WidgetSource) -> None:
    widgets.create("a", finalizers=[FINALIZER])
    sources = {
        "widgets": {"resource": widgets.crd.resource, "collector": "none"},
        "absent": {"resource": "gadgets.nowhere.test", "collector": "none"},
    }
    answer = widgets.knell(widgets.config(sources=sources), "uninstall", "--yes")
    assert answer.code == 0, answer.err
    assert "not installed" in answer.out
    assert not widgets.marked("a")


def test_failures_are_reported_and_the_command_can_be_repeated(widgets: WidgetSource) -> None:
    widgets.create("a", finalizers=[FINALIZER])
    add_rest(widgets)
    # May read, but not patch, as an observed source needs.
    config = widgets.config("observed", mode="observe")
    account = grant(widgets, config)
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    try:
        until("it is granted", lambda: account.kube.request("GET", widgets.crd.path(widgets.namespace)).status == 200)
        answer = widgets.knell(widgets.config(clusters={"here": here}), "uninstall", "--yes", "--output", "wide")
    finally:
        clear(widgets)
    assert answer.code == 1
    assert f"{widgets.crd.resource} {widgets.namespace}/a" in answer.out
    assert "could not be done" in answer.err
    assert widgets.marked("a")
    # What a second run needs is still there.
    assert widgets.api.kube.get(sources(widgets)) is not None
    assert widgets.knell(widgets.config(), "uninstall", "--yes").code == 0
    assert not widgets.marked("a")


def test_another_cluster_under_the_same_name_is_refused(widgets: WidgetSource) -> None:
    widgets.create("a", finalizers=[FINALIZER])
    here = {"kubeconfig": str(widgets.api.kubeconfig(widgets.folder / "wrong")), "context": "local", "uid": "another"}
    answer = widgets.knell(widgets.config(clusters={"here": here}), "uninstall", "--yes")
    assert answer.code == 1
    assert "should have uid another by clusters.here.uid" in answer.err
    assert widgets.marked("a")


# ---- sources that were removed from the settings


def remember(widgets: WidgetSource, source: str, resource: str, cluster_uid: str = "", **facts: str) -> None:
    """The record that a list of that source leaves in Redis."""
    found: Any = widgets.api.kube.get("/api/v1/namespaces/kube-system")
    uid = str(found["metadata"]["uid"])

    async def write(installation: Installation) -> None:
        keys, caller = installation.keys, installation.caller
        known = {"cluster": cluster_uid or uid, "resource": resource, "listed_at": "1", **facts}
        for field, value in known.items():
            await caller.command("HSET", keys.of(0, f"source:{source}"), field, value)
        await caller.command("HSET", keys.of(0, "clusters"), "here", uid)

    with_installation(widgets.redis, write)


def add_removed(widgets: WidgetSource) -> str:
    """Path of an object with our finalizer, of a resource that no source has."""
    crd = widgets.api.crd()
    path = crd.path(widgets.namespace, "left")
    widgets.api.kube.create(crd.path(widgets.namespace), crd.body("left", finalizers=[FINALIZER, OTHER]))
    return path


def finalizers(widgets: WidgetSource, path: str) -> list[str]:
    found: Any = widgets.api.kube.get(path)
    return list(found["metadata"].get("finalizers", []))


def resource_in(path: str) -> str:
    _, _, group, _, _, _, plural, _ = path.split("/")
    return f"{plural}.{group}"


@pytest.mark.parametrize("others", [True, False])
def test_finalizers_of_a_removed_source_are_removed_as_redis_remembers_them(
    widgets: WidgetSource, others: bool
) -> None:
    widgets.create("a", finalizers=[FINALIZER])
    path = add_removed(widgets)
    remember(widgets, "removed", resource_in(path))
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    add_lease(widgets, "knell-removed-0", "somebody", long_ago)
    config = widgets.config() if others else widgets.config(sources={})
    answer = widgets.knell(config, "uninstall", "--yes", "--output", "json")
    assert answer.code == 0, answer.err
    (here,) = answer.json["clusters"]
    assert {one["resource"]: one["marked"] for one in here["resources"]}[resource_in(path)] == 1
    assert finalizers(widgets, path) == [OTHER]
    assert widgets.marked("a") is not others
    assert names(widgets) == []


def test_an_earlier_resource_of_a_source_is_searched_as_well(widgets: WidgetSource) -> None:
    path = add_removed(widgets)
    remember(widgets, "widgets", resource_in(path))
    assert widgets.knell(widgets.config(), "uninstall", "--yes").code == 0
    assert finalizers(widgets, path) == [OTHER]


def test_sources_of_another_cluster_are_not_searched_in_this_one(widgets: WidgetSource) -> None:
    path = add_removed(widgets)
    remember(widgets, "removed", resource_in(path), cluster_uid="another")
    assert widgets.knell(widgets.config(), "uninstall", "--yes").code == 0
    assert finalizers(widgets, path) == [FINALIZER, OTHER]
    answer = widgets.knell(widgets.config(sources={}), "uninstall", "--yes")
    assert (answer.code, "--resource plural.group" in answer.err) == (2, True)


def test_a_resource_can_be_named_when_redis_is_lost(widgets: WidgetSource) -> None:
    path, second = add_removed(widgets), add_removed(widgets)
    (port,) = free_ports(1)
    away = {"KNELL_REDIS_URL": f"redis://127.0.0.1:{port}"}
    config = widgets.config(sources={})
    words = ("uninstall", "--yes", "--resource", resource_in(path), "--resource", resource_in(second))
    answer = widgets.knell(config, *words, variables=away)
    assert answer.code == 0, answer.err
    assert "name them by --resource" in answer.err
    assert finalizers(widgets, path) == finalizers(widgets, second) == [OTHER]


def test_an_invalid_resource_is_refused(widgets: WidgetSource) -> None:
    answer = widgets.knell(widgets.config(), "uninstall", "--yes", "--resource", "Widget/blue")
    assert answer.code == 2
    assert "'Widget/blue' given; allowed: plural.group" in answer.err
