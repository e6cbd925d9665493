"""The shipped roles: the service does all its work under them with a real token, and they grant nothing else."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from service.admission.manifests import webhook_configuration
from service.admission.names import CONFIGURATION
from service.cli.rbac import ServiceAccount, namespace_manifests, role_manifests
from service.cli.role import as_yaml
from service.contract.names import CONDITION
from service.settings import load
from service.sources.registry import SOURCES
from standins.controlplane import ControlPlane
from standins.ports import free_ports
from tests.api_servers import TestApi
from tests.integration.knell_process import AT_ONCE, KnellProcess, until
from tests.integration.widget_source import WidgetSource, widget_source
from tests.kube import Kube, KubeResponse
from tests.redis_servers import TestServer

RBAC = "/apis/rbac.authorization.k8s.io/v1"
PLACES = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": RBAC + "/namespaces/{}/roles",
    "RoleBinding": RBAC + "/namespaces/{}/rolebindings",
    "ClusterRole": RBAC + "/clusterroles",
    "ClusterRoleBinding": RBAC + "/clusterrolebindings",
}
SHIPPED = Path(__file__).parents[2] / "deploy" / "rbac"


@pytest.fixture
def widgets(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> WidgetSource:
    return widget_source(api, embedded_server, tmp_path)


@dataclass(frozen=True, slots=True)
class ServiceAccountClient:
    """The service account of a test, with a way to the server as it."""

    token: str
    kube: Kube


def grant(widgets: WidgetSource, config: Path) -> ServiceAccountClient:
    """Applies what `knell role` prints."""
    account = f"knell-{widgets.home}"
    made = widgets.knell(config, "role", "--account", account).out
    apply(widgets, made)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = widgets.api.kube.create(f"/api/v1/namespaces/{widgets.home}/serviceaccounts/{account}/token", asked)
    token = answer["status"]["token"]
    return ServiceAccountClient(token, Kube(widgets.api.url, token, widgets.api.ca))


def apply(widgets: WidgetSource, made: str) -> None:
    """By kubectl where there is a real server, else in the same way: one after the other, what is there stays."""
    if isinstance(widgets.api.server, ControlPlane):
        widgets.api.server.kubectl("apply", "-f", "-", stdin=made)
        return
    for one in yaml.safe_load_all(made):
        path = PLACES[one["kind"]].format(one["metadata"].get("namespace", ""))
        if widgets.api.kube.get(f"{path}/{one['metadata']['name']}") is None:
            widgets.api.kube.create(path, one)


def kubeconfig(widgets: WidgetSource, token: str) -> Path:
    """The admin's file with another token in it."""
    path = widgets.api.kubeconfig(widgets.folder / "service-account")
    path.write_text(path.read_text().replace(widgets.api.token, token))
    return path


def clear(widgets: WidgetSource) -> None:
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        for suffix in ("", "-uninstall"):
            widgets.api.kube.request("DELETE", f"{PLACES[kind]}/knell-{widgets.home}{suffix}")


@pytest.mark.parametrize("confined", [False, True], ids=["every namespace", "one namespace"])
def test_the_service_does_all_its_work_under_its_role(widgets: WidgetSource, confined: bool) -> None:
    changes: dict[str, Any] = {"namespaces": [widgets.namespace]} if confined else {}
    admin = widgets.config("admin", **changes)
    account = grant(widgets, admin)
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    with running(widgets, widgets.config("account", clusters={"here": here}, **changes)):
        widgets.create("one")
        widgets.create("held", annotations={"knell.dev/deletion-policy": "perhaps"})
        until("both are marked", lambda: widgets.marked("one") and widgets.marked("held"))
        widgets.delete("one")
        widgets.delete("held")
        until("one is released", lambda: widgets.get("one") is None)
        # What is held is reported: by a condition on the object and by an Event beside it.
        until("the condition says why", lambda: condition(widgets, "held") is not None)
        until("an Event tells it", lambda: events(widgets, "held"))
        widgets.patch("held", {"metadata": {"annotations": {"knell.dev/deletion-policy": "retain"}}})
    assert widgets.holder() == ""


def test_what_is_said_on_a_namespace_is_noticed_at_once_under_its_role(widgets: WidgetSource) -> None:
    account = grant(widgets, widgets.config("admin"))
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    protect(widgets, "true")
    # By itself what is held is looked at again only after minutes.
    with running(widgets, widgets.config("account", clusters={"here": here}), KNELL_RETRY_BASE="4m"):
        widgets.create("one")
        until("it is marked", lambda: widgets.marked("one"))
        widgets.delete("one")
        until("the condition says why", lambda: condition(widgets, "one") is not None)
        protect(widgets, None)
        until("it is released", lambda: widgets.get("one") is None)


def test_an_observed_source_needs_no_right_to_change_anything(widgets: WidgetSource) -> None:
    admin = widgets.config("admin", mode="observe")
    account = grant(widgets, admin)
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    with running(widgets, widgets.config("account", clusters={"here": here}, mode="observe")) as process:
        widgets.create("one")
        until("it is seen", lambda: process.number("knell_source_events_total") >= 1)
        widgets.delete("one")
        until("its deletion is carried out", lambda: process.number("knell_process_settled_total") == 1)
        assert (
            account.kube.request("PATCH", widgets.crd.path(widgets.namespace, "one"), {}, patch="merge").status == 403
        )


def test_without_the_right_to_watch_namespaces_it_is_only_slower(widgets: WidgetSource) -> None:
    account = grant(widgets, widgets.config("admin"))
    confine(widgets)
    until("it is taken away", lambda: account.kube.request("GET", "/api/v1/namespaces").status == 403)
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    slower = "annotations of Namespaces are not watched"
    with running(widgets, widgets.config("account", clusters={"here": here}), but=slower) as process:
        widgets.create("one")
        until("it is marked", lambda: widgets.marked("one"))
        until("it is said", lambda: slower in process.log.read_text())
        widgets.delete("one")
        until("it is released", lambda: widgets.get("one") is None)
        assert process.number("knell_source_problem") == 0


def test_what_is_printed_can_be_applied_where_there_is_nothing_yet(widgets: WidgetSource) -> None:
    """Neither the Namespace of the service account nor that of the Leases is there."""
    account, home, leases = f"knell-{widgets.home}", f"{widgets.home}-account", f"{widgets.home}-leases"
    config = widgets.config("admin", watch={"namespace": leases})
    answer = widgets.knell(config, "role", "--account", account, "--namespace", home)
    apply(widgets, answer.out)
    try:
        assert answer.err == ""
        assert widgets.api.kube.get(f"/api/v1/namespaces/{home}/serviceaccounts/{account}") is not None
        assert widgets.api.kube.get(f"{RBAC}/namespaces/{leases}/roles/{account}") is not None
        # Once more, and nothing stands in its way.
        apply(widgets, answer.out)
        found = widgets.knell(config, "doctor", "--output", "json").json["findings"]
        assert {one["state"] for one in found if one["check"] == "namespace"} == {"fine"}
    finally:
        clear(widgets)


def test_a_namespace_of_others_is_never_printed_but_named(widgets: WidgetSource) -> None:
    """Who deletes what was applied would delete it with everything in it."""
    tenant = f"{widgets.home}-tenant"
    config = widgets.config("admin", namespaces=[tenant])
    answer = widgets.knell(config, "role", "--account", f"knell-{widgets.home}", "--output", "json")
    made = answer.json["items"]
    assert [one["metadata"]["name"] for one in made if one["kind"] == "Namespace"] == [widgets.home]
    assert made[0]["kind"] == "Namespace"
    assert "labels" not in made[0]["metadata"]
    places = [one["metadata"].get("namespace", "") for one in made]
    assert set(places[places.index(tenant) :]) == {tenant}, "what can't be applied yet stands last"
    assert f"Roles in {tenant} are among these" in answer.err


def protect(widgets: WidgetSource, value: str | None) -> None:
    body = {"metadata": {"annotations": {"knell.dev/prevent-delete": value}}}
    widgets.api.kube.patch(f"/api/v1/namespaces/{widgets.namespace}", body)


def confine(widgets: WidgetSource) -> None:
    """As roles were that knew nothing of watching Namespaces."""
    path = f"{PLACES['ClusterRole']}/knell-{widgets.home}"
    found = widgets.api.kube.get(path)
    assert found is not None
    rules = found["rules"]
    for rule in rules:
        if rule["resources"] == ["namespaces"]:
            rule["verbs"] = ["get"]
    widgets.api.kube.patch(path, {"rules": rules})


@contextmanager
def running(
    widgets: WidgetSource, config: Path, but: str = "", *, command: str = "run", **variables: str
) -> Iterator[KnellProcess]:
    """`knell run`, from the first complete list to an orderly end, in which nothing was forbidden, but for that."""
    process = widgets.start(config, command, **variables)
    try:
        process.until_ready()
        until("it watches", lambda: process.number("knell_source_relists_total") >= 1)
        yield process
        process.process.send_signal(signal.SIGTERM)
        assert process.end(AT_ONCE) == 0
    finally:
        process.process.kill()
        process.process.wait()
        clear(widgets)
    lines = process.log.read_text().splitlines()
    assert [line for line in lines if "orbidden" in line and not (but and but in line)] == []


def condition(widgets: WidgetSource, name: str) -> Any:
    conditions = widgets.get(name).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == CONDITION), None)


def events(widgets: WidgetSource, name: str) -> list[Any]:
    found: Any = widgets.api.kube.get(f"/apis/events.k8s.io/v1/namespaces/{widgets.namespace}/events")
    return [one for one in found["items"] if one["regarding"]["name"] == name]


def test_the_role_grants_nothing_else(widgets: WidgetSource) -> None:
    """What a thief of the token might like to do."""
    account = grant(widgets, widgets.config(namespaces=[widgets.namespace]))
    elsewhere = widgets.api.namespace()
    widgets.create("one")
    try:
        until("it is granted", lambda: account.kube.request("GET", widgets.crd.path(widgets.namespace)).status == 200)
        forbidden = [
            ("GET", "/api/v1/secrets"),
            ("GET", f"/api/v1/namespaces/{widgets.home}/secrets"),
            ("GET", f"/api/v1/namespaces/{widgets.home}/configmaps"),
            ("GET", f"/api/v1/namespaces/{widgets.home}/configmaps/kube-root-ca.crt"),
            ("GET", "/apis/coordination.k8s.io/v1/leases"),
            ("GET", f"/apis/coordination.k8s.io/v1/namespaces/{elsewhere}/leases"),
            ("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{widgets.home}/leases"),
            ("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{widgets.home}/leases/another"),
            ("DELETE", f"/api/v1/namespaces/{widgets.home}/configmaps/another"),
            ("GET", widgets.crd.path(elsewhere)),
            ("DELETE", widgets.crd.path(widgets.namespace, "one")),
            ("DELETE", widgets.crd.own_path),
            ("DELETE", f"/api/v1/namespaces/{widgets.namespace}"),
            ("GET", f"{RBAC}/clusterroles"),
        ]
        seen = {(method, path): account.kube.request(method, path).status for method, path in forbidden}
        assert seen == dict.fromkeys(forbidden, 403)
    finally:
        clear(widgets)


def test_no_rule_has_a_wildcard_unless_the_webhook_is_enabled(widgets: WidgetSource) -> None:
    more: Any = {"protection": {"groups": ["example.com"], "restrict_marks": True}}
    for changes in ({}, {"namespaces": [widgets.namespace]}, {"mode": "observe"}, {"shares": 4}, more):
        settings = load(widgets.config(**changes), {})
        for one in role_manifests(settings, "here", ServiceAccount(widgets.home)):
            for rule in one.get("rules", []):
                words = [word for key in ("apiGroups", "resources", "verbs") for word in rule[key]]
                assert not any("*" in word for word in words), rule
                if "secrets" in rule["resources"]:
                    assert rule["resourceNames"]


WEBHOOK: dict[str, Any] = {"enabled": True, "url": "https://127.0.0.1:9"}


def rules_of(widgets: WidgetSource, **protection: Any) -> list[tuple[str, dict[str, Any]]]:
    """With the name of their role."""
    settings = load(widgets.config(protection=protection), {})
    made = role_manifests(settings, "here", ServiceAccount(widgets.home))
    return [(one["metadata"]["name"], rule) for one in made for rule in one.get("rules", [])]


def test_the_webhook_may_list_whole_groups_and_change_only_what_is_named(widgets: WidgetSource) -> None:
    rules = rules_of(widgets, webhook=WEBHOOK, groups=["example.com", "s3.services.k8s.aws"])
    wild = [rule for _, rule in rules if "*" in rule["resources"] + rule["apiGroups"] + rule["verbs"]]
    assert wild == [
        {"apiGroups": [group], "resources": ["*"], "verbs": ["list"]}
        for group in ("example.com", widgets.crd.group, "s3.services.k8s.aws")
    ]
    secrets = [rule for _, rule in rules if "secrets" in rule["resources"]]
    assert [(rule["verbs"], rule.get("resourceNames")) for rule in secrets] == [
        (["create"], None), (["get", "patch", "update"], ["knell-webhook-tls"]),
    ]  # fmt: skip
    changing = [rule for _, rule in rules if "admissionregistration.k8s.io" in rule["apiGroups"]]
    assert all(rule["resourceNames"] for rule in changing)
    assert {name for name, rule in rules if "delete" in rule["verbs"] and rule in changing} == {"knell-uninstall"}


@pytest.mark.parametrize("certificate", ["secret", "cert-manager"])
def test_a_webhook_with_a_given_certificate_only_reads_its_secret(widgets: WidgetSource, certificate: str) -> None:
    rules = rules_of(widgets, webhook={**WEBHOOK, "certificate": certificate, "secret": "mine"})
    secrets = [rule for _, rule in rules if "secrets" in rule["resources"]]
    assert secrets == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["mine"]}]


def test_resources_of_the_core_group_are_listed_by_name(widgets: WidgetSource) -> None:
    """A wildcard would include Secrets."""
    sources = {"claims": {"resource": "persistentvolumeclaims", "collector": "none"}}
    settings = load(widgets.config(sources=sources, protection={"webhook": WEBHOOK}), {})
    rules = [rule for one in role_manifests(settings, "here") for rule in one.get("rules", [])]
    assert {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["list"]} in rules
    assert not any("*" in rule["resources"] for rule in rules)


@pytest.mark.long
def test_the_webhook_does_its_work_under_its_role(widgets: WidgetSource) -> None:
    (port,) = free_ports(1)
    url, only = f"https://127.0.0.1:{port}", f"kubernetes.io/metadata.name={widgets.namespace}"
    webhook = {"enabled": True, "host": "127.0.0.1", "port": port, "url": url, "namespaces": only}
    admin = widgets.config("admin", protection={"webhook": webhook})
    widgets.create("one", annotations={"knell.dev/prevent-delete": "true"})
    configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    kube = widgets.api.kube
    account = grant(widgets, admin)
    here = {"kubeconfig": str(kubeconfig(widgets, account.token)), "context": "local"}
    config = widgets.config("account", clusters={"here": here}, protection={"webhook": webhook})
    process = widgets.start(config, "webhook")
    try:
        kube.create(configurations, webhook_configuration(load(admin, {})))
        process.until_ready()
        path = f"/api/v1/namespaces/{widgets.namespace}?dryRun=All"
        denied = until("it denies", lambda: _denial(kube.request("DELETE", path)))
        assert f"{widgets.crd.kind.lower()}" in denied
        assert "can't be" not in denied
        for forbidden in ("secrets", "configmaps", "secrets/another"):
            assert account.kube.request("GET", f"/api/v1/namespaces/{widgets.home}/{forbidden}").status == 403
        process.process.send_signal(signal.SIGTERM)
        assert process.end(AT_ONCE) == 0
    finally:
        process.process.kill()
        process.process.wait()
        kube.request("DELETE", f"{configurations}/{CONFIGURATION}")
        clear(widgets)
    assert "orbidden" not in process.log.read_text()


def _denial(answer: KubeResponse) -> str:
    message = str(answer.body.get("message", ""))
    return message if "denied the request" in message else ""


def test_what_is_shipped_is_what_its_settings_make() -> None:
    settings = load(SHIPPED / "settings.yaml", {})
    assert {one.collector for one in settings.sources.values()} == {known.name for known in SOURCES if known.components}
    for cluster in settings.clusters:
        made = [
            *namespace_manifests(settings, ServiceAccount(settings.watch.namespace)),
            *role_manifests(settings, cluster),
        ]
        assert (SHIPPED / f"{cluster}.yaml").read_text() == as_yaml(made)


def test_a_kubeconfig_in_a_secret_is_the_only_secret_it_may_read(widgets: WidgetSource) -> None:
    config = widgets.config(
        clusters={
            "here": {"kubeconfig": str(widgets.api.kubeconfig(widgets.folder / "admin"))},
            "there": {"via": "here", "secret": f"{widgets.namespace}/remote/kubeconfig"},
        },
        sources={"widgets": {"resource": widgets.crd.resource, "collector": "none", "cluster": "there"}},
    )
    made = msgspec.json.decode(widgets.knell(config, "role", "--cluster", "here", "--output", "json").out)["items"]
    rules = [rule for one in made for rule in one.get("rules", []) if "secrets" in rule["resources"]]
    assert rules == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["remote"]}]
    assert not any(widgets.crd.plural in rule["resources"] for one in made for rule in one.get("rules", []))
