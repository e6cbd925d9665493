"""`knell doctor` checks the clusters of the settings: access, identity, and resources and permissions of sources."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from service.engine.installation import Installation
from service.settings import load
from service.watching.cluster_identity import ClusterIdentities
from standins.kubernetes_api import EmbeddedApi
from tests.api_servers import TestApi
from tests.integration.command_line import CommandResult, environment
from tests.integration.test_cli_role import clear, confine, grant, kubeconfig
from tests.integration.widget_source import WidgetSource, widget_source
from tests.redis_servers import TestServer


@pytest.fixture
def widgets(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> WidgetSource:
    return widget_source(api, embedded_server, tmp_path)


def examined(
    widgets: WidgetSource, config: Path, cluster: str = "here"
) -> tuple[CommandResult, dict[str, dict[str, Any]]]:
    """Results of one cluster by check."""
    answer = widgets.knell(config, "doctor", "--output", "json")
    found = [one for one in answer.json["findings"] if one["node"] == f"cluster {cluster}"]
    return answer, {one["check"]: one for one in found}


def told(widgets: WidgetSource) -> str:
    """Only the real API server answers access reviews; on others the check is unknown."""
    return "fine" if widgets.api.kind == "real" else "unknown"


def test_a_cluster_with_everything_passes_all_checks(widgets: WidgetSource) -> None:
    answer, found = examined(widgets, widgets.config())
    assert {check: one["state"] for check, one in found.items()} == {
        "reachable": "fine", "identity": "fine", "namespace": "fine", "source widgets": "fine", "access": told(widgets),
        "protection policy": "fine",
    }  # fmt: skip
    assert (answer.code, answer.json["sound"]) == (0, True)
    assert "seen for the first time" in found["identity"]["what"]
    assert "in version v1" in found["source widgets"]["what"]
    if told(widgets) == "unknown":
        assert "not checked" in found["access"]["what"]
    everything = widgets.knell(widgets.config(), "doctor", "--all")
    assert (everything.code, "fine: reachable (cluster here): " in everything.out) == (0, True)


def test_without_clusters_in_the_settings_none_is_checked(widgets: WidgetSource) -> None:
    path = widgets.folder / "bare.yaml"
    path.write_text("{}\n")
    answer = widgets.knell(path, "doctor", "--output", "json")
    assert answer.code == 0
    assert not [one for one in answer.json["findings"] if one["node"].startswith("cluster")]


async def test_a_name_that_leads_to_another_cluster_is_wrong_and_ends_its_checks(widgets: WidgetSource) -> None:
    config = widgets.config()
    settings = load(config, environment(widgets.redis))
    installation = Installation(settings)
    try:
        await ClusterIdentities(settings, installation).confirm("here", "another-uid")
    finally:
        await installation.aclose()
    answer, found = await asyncio.to_thread(examined, widgets, config)
    assert answer.code == 1
    assert {check: one["state"] for check, one in found.items()} == {"reachable": "fine", "identity": "wrong"}
    assert "has always had uid another-uid" in found["identity"]["what"]
    assert "knell clusters forget here" in found["identity"]["mend"]


def test_a_missing_namespace_and_a_missing_resource_are_reported(widgets: WidgetSource) -> None:
    source = {"resource": widgets.crd.resource, "collector": "none"}
    config = widgets.config(
        sources={"widgets": source, "ghosts": {**source, "resource": "ghosts.knell.test"}},
        watch={"namespace": "nowhere-at-all"},
    )
    answer, found = examined(widgets, config)
    assert answer.code == 1
    assert found["namespace"]["state"] == "wrong"
    assert "knell role --cluster here | kubectl apply -f -" in found["namespace"]["mend"]
    assert (found["source widgets"]["state"], found["source ghosts"]["state"]) == ("fine", "warning")
    assert "sources.ghosts.resource" in found["source ghosts"]["mend"]


def test_a_kind_that_is_not_installed_is_only_a_warning(widgets: WidgetSource) -> None:
    answer, found = examined(widgets, widgets.config(resource="ghosts.knell.test"))
    assert (answer.code, found["source widgets"]["state"]) == (0, "warning")


def test_a_cluster_that_does_not_answer_is_wrong_and_the_others_are_checked(widgets: WidgetSource) -> None:
    here = {"kubeconfig": str(widgets.api.kubeconfig(widgets.folder / "admin")), "context": "local"}
    away = widgets.folder / "away"
    with EmbeddedApi() as gone:
        gone.kubeconfig(away)
    source = {"resource": widgets.crd.resource, "collector": "none", "cluster": "here"}
    config = widgets.config(
        clusters={"away": {"kubeconfig": str(away), "context": "local"}, "here": here}, sources={"widgets": source}
    )
    answer, found = examined(widgets, config, "away")
    assert answer.code == 1
    assert list(found) == ["reachable"]
    assert found["reachable"]["state"] == "wrong"
    assert "mend clusters.away" in found["reachable"]["mend"]
    assert examined(widgets, config)[1]["source widgets"]["state"] == "fine"


def test_what_a_role_lacks_is_named_with_how_to_mend_it(widgets: WidgetSource) -> None:
    """The role was applied, and a source declared since."""
    added = widgets.api.crd()
    account = grant(widgets, widgets.config("admin"))
    try:
        here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
        source = {"resource": widgets.crd.resource, "collector": "none"}
        _, before = examined(widgets, widgets.config("before", clusters={"here": here}))
        sources = {"widgets": source, "more": {**source, "resource": added.resource}}
        answer, after = examined(widgets, widgets.config("after", clusters={"here": here}, sources=sources))
    finally:
        clear(widgets)
    assert before["access"]["state"] == told(widgets)
    assert after["reachable"]["state"] == after["identity"]["state"] == "fine"
    if told(widgets) == "unknown":
        assert after["access"]["state"] == "unknown"
        return
    assert (answer.code, after["access"]["state"]) == (1, "wrong")
    assert f"list {added.resource}" in after["access"]["what"]
    assert f"patch {added.resource}" in after["access"]["what"]
    assert f"get leases.coordination.k8s.io knell-more-0 in {widgets.home}" in after["access"]["what"]
    assert widgets.crd.resource not in after["access"]["what"]
    assert "knell role --cluster here | kubectl apply -f -" in after["access"]["mend"]


def test_a_role_that_only_lacks_what_makes_it_quicker_is_a_warning(widgets: WidgetSource) -> None:
    account = grant(widgets, widgets.config("admin"))
    confine(widgets)
    try:
        here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
        answer, found = examined(widgets, widgets.config("account", clusters={"here": here}))
    finally:
        clear(widgets)
    assert answer.code == 0
    assert found["access"]["state"] == ("warning" if told(widgets) == "fine" else "unknown")
    if told(widgets) == "fine":
        assert "may not list namespaces, watch namespaces: " in found["access"]["what"]


def test_a_role_that_only_lacks_what_uninstall_needs_is_fine(widgets: WidgetSource) -> None:
    account = grant(widgets, widgets.config("admin"))
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{widgets.home}/roles/knell-{widgets.home}-uninstall"
    widgets.api.kube.delete(role)
    try:
        here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
        answer, found = examined(widgets, widgets.config("account", clusters={"here": here}))
    finally:
        clear(widgets)
    assert (answer.code, found["access"]["state"]) == (0, told(widgets))
    if told(widgets) == "fine":
        assert f"may not delete configmaps knell-sources in {widgets.home}" in found["access"]["what"]
        assert "only `knell uninstall` needs that" in found["access"]["what"]


def test_the_error_for_credentials_without_permissions_names_the_role_they_need(widgets: WidgetSource) -> None:
    account = f"/api/v1/namespaces/{widgets.home}/serviceaccounts"
    widgets.api.kube.create(account, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = widgets.api.kube.create(f"{account}/nobody/token", asked)["status"]["token"]
    here = {"kubeconfig": str(kubeconfig(widgets, token)), "context": "local"}
    answer, found = examined(widgets, widgets.config(clusters={"here": here}))
    assert (answer.code, found["reachable"]["state"]) == (1, "wrong")
    assert "knell role" in found["reachable"]["mend"]
    assert token not in answer.out


def test_settings_that_cannot_be_watched_are_reported(widgets: WidgetSource) -> None:
    answer = widgets.knell(widgets.config(collector="nonesuch"), "doctor", "--output", "json")
    assert answer.code == 1
    (found,) = [one for one in answer.json["findings"] if one["check"] == "sources"]
    assert "nonesuch" in found["what"]


def test_without_redis_the_clusters_are_still_checked(widgets: WidgetSource) -> None:
    nowhere = {"KNELL_REDIS_URL": "redis://127.0.0.1:1"}
    answer = widgets.knell(widgets.config(), "doctor", "--output", "json", variables=nowhere)
    found = {one["check"]: one for one in answer.json["findings"] if one["node"] == "cluster here"}
    assert answer.code == 1
    assert (found["identity"]["state"], found["source widgets"]["state"]) == ("unknown", "fine")
    assert answer.json["sound"] is False
