"""What `knell role` grants for clusters on AWS, and what `knell doctor` finds out about CAPA beside us with it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.cli.doctor.cluster_checks import needed_permissions
from service.settings import load
from service.sources.capa import AWS_ACCOUNT, AWS_FINALIZER, CAPA_MANAGER, CAPA_NAMESPACE
from tests.api_servers import TestApi
from tests.capi import (
    AWS_CLUSTERS,
    AWS_MANAGED_CONTROL_PLANES,
    CLUSTERS,
    CONTROLLER_IDENTITIES,
    MACHINE_POOLS,
    MACHINES,
    ROLE_IDENTITIES,
    STATIC_IDENTITIES,
    CapiObjects,
)
from tests.integration.command_line import environment
from tests.integration.knell_process import until
from tests.integration.test_cli_role import PLACES, clear, grant, kubeconfig, running
from tests.integration.widget_source import WidgetSource, widget_source
from tests.redis_servers import TestServer

DEPLOYMENTS = f"/apis/apps/v1/namespaces/{CAPA_NAMESPACE}/deployments"


@pytest.fixture
def widgets(
    api: TestApi, embedded_server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WidgetSource]:
    """Without credentials for AWS: nothing is asked there."""
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    made = widget_source(api, embedded_server, tmp_path, AWS_CLUSTERS)
    CapiObjects(api.kube, made.namespace)
    # Others may have made it.
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CAPA_NAMESPACE}}
    api.kube.request("POST", "/api/v1/namespaces", home)
    yield made
    clear(made)


def settings(widgets: WidgetSource, name: str = "aws", *, on: bool = True, **changes: Any) -> Path:
    source = {"resource": AWS_CLUSTERS.resource, "collector": "capa", "namespaces": [widgets.namespace]}
    clusters = {"clusters": changes.pop("clusters")} if "clusters" in changes else {}
    path = widgets.config(name, sources={"aws": {**source, **changes}}, **clusters)
    path.write_text(f"{path.read_text()}features: {{ExternalResourceGC: {str(on).lower()}}}\n")
    return path


def test_clusters_are_marked_and_released_under_the_role(widgets: WidgetSource) -> None:
    capi = CapiObjects(widgets.api.kube, widgets.namespace)
    capi.unmanaged("paused", paused=True)
    account = grant(widgets, settings(widgets, "admin"))
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    with running(widgets, settings(widgets, "account", clusters={"here": here}), command="watch"):
        capi.unmanaged("one")
        until("it is marked", lambda: AWS_FINALIZER in capi.finalizers(AWS_CLUSTERS, "one"))
        assert capi.finalizers(AWS_CLUSTERS, "paused") == []
        capi.annotate(AWS_CLUSTERS, "one", **{"aws.cluster.x-k8s.io/external-resource-gc": "false"})
        until("it is let go", lambda: capi.finalizers(AWS_CLUSTERS, "one") == [])


@pytest.mark.parametrize("confined", [True, False], ids=["one namespace", "every namespace"])
def test_what_a_worker_reads_of_clusters_on_aws_is_granted_and_no_more(widgets: WidgetSource, confined: bool) -> None:
    account = grant(widgets, settings(widgets, "admin", namespaces=[widgets.namespace] if confined else []))
    elsewhere, here = widgets.api.namespace(), widgets.namespace
    until("it is granted", lambda: account.kube.request("GET", AWS_CLUSTERS.path(here)).status == 200)
    # Namesakes may be anywhere, and identities are nowhere.
    identities = (CONTROLLER_IDENTITIES, ROLE_IDENTITIES, STATIC_IDENTITIES)
    allowed = [
        AWS_CLUSTERS.path(), AWS_MANAGED_CONTROL_PLANES.path(), MACHINES.path(here), MACHINE_POOLS.path(here),
        CLUSTERS.path(here, "x"), *(crd.path(name="x") for crd in identities),
        f"/api/v1/namespaces/{CAPA_NAMESPACE}/secrets/x", f"/api/v1/namespaces/{elsewhere}",
    ]  # fmt: skip
    seen = {path: account.kube.request("GET", path).status for path in allowed}
    assert {path for path, status in seen.items() if status not in (200, 404)} == set()
    forbidden = [
        f"/api/v1/namespaces/{CAPA_NAMESPACE}/secrets", f"/api/v1/namespaces/{here}/secrets/x",
        STATIC_IDENTITIES.path(), CLUSTERS.path(here),
        *([MACHINES.path(elsewhere), CLUSTERS.path(elsewhere, "x")] if confined else []),
    ]  # fmt: skip
    assert {path: account.kube.request("GET", path).status for path in forbidden} == dict.fromkeys(forbidden, 403)
    for crd in (CLUSTERS, MACHINES, AWS_MANAGED_CONTROL_PLANES):
        assert account.kube.request("PATCH", crd.path(here, "x"), {}, patch="merge").status == 403


def test_other_sources_are_granted_nothing_of_it(widgets: WidgetSource) -> None:
    config = widgets.config("plain", sources={"plain": {"resource": AWS_CLUSTERS.resource, "collector": "none"}})
    made = widgets.knell(config, "role", "--output", "json").json["items"]
    words = {word for one in made for rule in one.get("rules", []) for word in rule["resources"]}
    assert words.isdisjoint({"clusters", "machines", "secrets", "deployments", "awsmanagedcontrolplanes"})
    assert not any(one["metadata"].get("namespace") == CAPA_NAMESPACE for one in made)


@pytest.mark.invariant(11)
def test_the_policy_for_aws_is_made_from_the_tasks_that_are_allowed(widgets: WidgetSource) -> None:
    config = settings(widgets)
    usual = widgets.knell(config, "role", "--aws-policy")
    assert usual.code == 0, usual.err
    assert "ec2:DeleteSecurityGroup" in usual.out
    assert "ec2:DeleteVolume" not in usual.out
    config.write_text(
        f"{config.read_text()}aws: {{tasks: [security-group], allowed_tasks: [security-group, volume]}}\n"
    )
    sids = [one["Sid"] for one in widgets.knell(config, "role", "--aws-policy").json["Statement"]]
    assert sids == ["Reads", "TaskSecurityGroup", "TaskVolume", "SettingMarkRetained"]


# ---- doctor


def test_a_role_without_the_list_of_all_namespaces_is_found_out(widgets: WidgetSource) -> None:
    account = grant(widgets, settings(widgets, "admin"))
    path = f"{PLACES['ClusterRole']}/knell-{widgets.home}"
    role: Any = widgets.api.kube.get(path)
    rules = [rule for rule in role["rules"] if AWS_CLUSTERS.plural not in rule["resources"]]
    assert len(rules) < len(role["rules"])
    widgets.api.kube.patch(path, {"rules": rules})
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    config = settings(widgets, "account", clusters={"here": here})
    # Only the real server says what credentials may do; what it is asked is the same.
    wanted = {str(one) for one in needed_permissions(load(config, environment(widgets.redis)), "here")}
    assert f"list {AWS_CLUSTERS.resource}" in wanted
    found = examined(widgets, config)["access"]
    if widgets.api.kind == "real":
        assert (found["state"], f"list {AWS_CLUSTERS.resource}" in found["what"]) == ("wrong", True)


def examined(widgets: WidgetSource, config: Path) -> dict[str, Any]:
    answer = widgets.knell(config, "doctor", "--output", "json")
    return {one["check"]: one for one in answer.json["findings"]}


def deployed(widgets: WidgetSource, args: list[str]) -> None:
    labels = {"app": "capa"}
    container = {"name": "manager", "image": "registry.example/cluster-api-aws-controller:v2.6.1", "args": args}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": CAPA_MANAGER}, "spec": spec}
    widgets.api.kube.create(DEPLOYMENTS, body)


@pytest.mark.parametrize(
    ("args", "tasks", "state", "words"),
    [
        (["--feature-gates=ExternalResourceGC=true"], "", "warning", "it ignores protection and policy by knell.dev"),
        ([], "aws: {tasks: [volume]}\n", "warning", "aws.tasks leaves out load-balancer"),
        (["--feature-gates=EKS=true,ExternalResourceGC=false"], "aws: {tasks: [volume]}\n", "fine", "is off"),
    ],
)
def test_doctor_says_whether_capa_collects_too(
    widgets: WidgetSource, args: list[str], tasks: str, state: str, words: str
) -> None:
    config = settings(widgets, namespaces=[])
    config.write_text(config.read_text() + tasks)
    if widgets.api.kind != "real":
        found = examined(widgets, config)["CAPA's own collector"]
        assert (found["state"], "not known" in found["what"]) == ("unknown", True)
        return
    deployed(widgets, args)
    try:
        found = examined(widgets, config)["CAPA's own collector"]
    finally:
        widgets.api.kube.delete(f"{DEPLOYMENTS}/{CAPA_MANAGER}")
    assert (found["state"], words in found["what"]) == (state, True), found


def test_doctor_looks_for_capa_where_the_settings_say_it_runs(widgets: WidgetSource) -> None:
    where = widgets.api.namespace()
    config = settings(widgets)
    config.write_text(f"{config.read_text()}aws: {{identity_namespace: {where}}}\n")
    found = examined(widgets, config)["CAPA's own collector"]["what"]
    assert f"in {where}: " in found


def test_doctor_names_clusters_whose_account_nothing_tells_and_what_to_do(widgets: WidgetSource) -> None:
    capi = CapiObjects(widgets.api.kube, widgets.namespace)
    config = settings(widgets)
    none = examined(widgets, config)["accounts"]
    assert (none["state"], "aws.account is not set" in none["what"]) == ("warning", True)
    capi.unmanaged("by-role", identity={"kind": ROLE_IDENTITIES.kind, "name": "tenant"})
    assert examined(widgets, config)["accounts"]["state"] == "fine"
    capi.unmanaged("own")
    capi.unmanaged("static", identity={"kind": STATIC_IDENTITIES.kind, "name": "tenant"})
    capi.unmanaged("left", annotations={"aws.cluster.x-k8s.io/external-resource-gc": "false"})
    found = examined(widgets, config)["accounts"]
    assert found["state"] == "warning"
    assert f"of 2 of 3 clusters ({widgets.namespace}/own, {widgets.namespace}/static)" in found["what"]
    assert "set aws.account" in found["mend"]
    assert "knell gc enable" in found["mend"]
    account = "aws: {account: '111122223333'}\n"
    config.write_text(config.read_text() + account)
    found = examined(widgets, config)["accounts"]
    assert f"of 1 of 3 clusters ({widgets.namespace}/static)" in found["what"]
    capi.annotate(AWS_CLUSTERS, "static", **{AWS_ACCOUNT: "444455556666"})
    assert examined(widgets, config)["accounts"]["state"] == "fine"


def test_doctor_may_look_at_the_accounts_under_the_role(widgets: WidgetSource) -> None:
    account = grant(widgets, settings(widgets, "admin"))
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    until("it is granted", lambda: account.kube.request("GET", AWS_CLUSTERS.path(widgets.namespace)).status == 200)
    config = settings(widgets, "account", clusters={"here": here})
    assert examined(widgets, config)["accounts"]["state"] == "warning"


def test_doctor_warns_of_a_source_whose_feature_is_off(widgets: WidgetSource) -> None:
    off = examined(widgets, settings(widgets, on=False))["feature"]
    assert (off["state"], "ExternalResourceGC is off" in off["what"]) == ("warning", True)
    assert "KNELL_FEATURES_EXTERNALRESOURCEGC" in off["mend"]
    assert examined(widgets, settings(widgets))["feature"]["state"] == "fine"


def test_doctor_is_silent_about_capa_where_no_source_needs_it(widgets: WidgetSource) -> None:
    config = widgets.config("plain", sources={"plain": {"resource": AWS_CLUSTERS.resource, "collector": "none"}})
    assert {"feature", "accounts", "CAPA's own collector"}.isdisjoint(examined(widgets, config))
