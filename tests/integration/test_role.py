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

from service.cli.role import as_yaml
from service.contract.names import CONDITION
from service.settings import load
from service.watching.role import Holder, manifests, own_namespaces
from standins.controlplane import ControlPlane
from standins.demo.kinds import KINDS
from tests.clusters import TestApi
from tests.integration.declared import Declared, declare
from tests.integration.test_work_command import AT_ONCE, Process, until
from tests.kube import Kube
from tests.servers import TestServer

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
def world(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> Declared:
    return declare(api, embedded_server, tmp_path)


@dataclass(frozen=True, slots=True)
class Account:
    """The service account of a test, with a way to the server as it."""

    token: str
    kube: Kube


def grant(world: Declared, config: Path) -> Account:
    """Applies what `knell role` prints."""
    account = f"knell-{world.home}"
    made = world.knell(config, "role", "--account", account).out
    apply(world, made)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = world.api.kube.create(f"/api/v1/namespaces/{world.home}/serviceaccounts/{account}/token", asked)
    token = answer["status"]["token"]
    return Account(token, Kube(world.api.url, token, world.api.ca))


def apply(world: Declared, made: str) -> None:
    """By kubectl where there is a real server, else in the same way: one after the other, what is there stays."""
    if isinstance(world.api.server, ControlPlane):
        world.api.server.kubectl("apply", "-f", "-", stdin=made)
        return
    for one in yaml.safe_load_all(made):
        path = PLACES[one["kind"]].format(one["metadata"].get("namespace", ""))
        if world.api.kube.get(f"{path}/{one['metadata']['name']}") is None:
            world.api.kube.create(path, one)


def kubeconfig(world: Declared, token: str) -> Path:
    """The admin's file with another token in it."""
    path = world.api.kubeconfig(world.folder / "service-account")
    path.write_text(path.read_text().replace(world.api.token, token))
    return path


def clear(world: Declared) -> None:
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        world.api.kube.request("DELETE", f"{PLACES[kind]}/knell-{world.home}")


@pytest.mark.parametrize("confined", [False, True], ids=["every namespace", "one namespace"])
def test_the_service_does_all_its_work_under_its_role(world: Declared, confined: bool) -> None:
    changes: dict[str, Any] = {"namespaces": [world.namespace]} if confined else {}
    admin = world.config("admin", **changes)
    account = grant(world, admin)
    here = {"kubeconfig": str(kubeconfig(world, account.token)), "context": "local"}
    with running(world, world.config("account", clusters={"here": here}, **changes)):
        world.create("one")
        world.create("held", annotations={"knell.dev/deletion-policy": "perhaps"})
        until("both are marked", lambda: world.marked("one") and world.marked("held"))
        world.delete("one")
        world.delete("held")
        until("one is released", lambda: world.get("one") is None)
        # What is held is told: by a condition on the object and by an Event beside it.
        until("it is told why", lambda: condition(world, "held") is not None)
        until("an Event tells it", lambda: events(world, "held"))
        world.patch("held", {"metadata": {"annotations": {"knell.dev/deletion-policy": "retain"}}})
    assert world.holder() == ""


def test_what_is_said_on_a_namespace_is_noticed_at_once_under_its_role(world: Declared) -> None:
    account = grant(world, world.config("admin"))
    here = {"kubeconfig": str(kubeconfig(world, account.token)), "context": "local"}
    protect(world, "true")
    # By itself what is held is looked at again only after minutes.
    with running(world, world.config("account", clusters={"here": here}), KNELL_RETRY_BASE="4m"):
        world.create("one")
        until("it is marked", lambda: world.marked("one"))
        world.delete("one")
        until("it is told why", lambda: condition(world, "one") is not None)
        protect(world, None)
        until("it is released", lambda: world.get("one") is None)


def test_an_observed_source_needs_no_right_to_change_anything(world: Declared) -> None:
    admin = world.config("admin", mode="observe")
    account = grant(world, admin)
    here = {"kubeconfig": str(kubeconfig(world, account.token)), "context": "local"}
    with running(world, world.config("account", clusters={"here": here}, mode="observe")) as process:
        world.create("one")
        until("it is seen", lambda: process.number("knell_source_events_total") >= 1)
        world.delete("one")
        until("its deletion is carried out", lambda: process.number("knell_process_settled_total") == 1)
        assert account.kube.request("PATCH", world.crd.path(world.namespace, "one"), {}, patch="merge").status == 403


def test_without_the_right_to_watch_namespaces_it_is_only_slower(world: Declared) -> None:
    account = grant(world, world.config("admin"))
    confine(world)
    until("it is taken away", lambda: account.kube.request("GET", "/api/v1/namespaces").status == 403)
    here = {"kubeconfig": str(kubeconfig(world, account.token)), "context": "local"}
    slower = "marks of Namespaces are not watched"
    with running(world, world.config("account", clusters={"here": here}), but=slower) as process:
        world.create("one")
        until("it is marked", lambda: world.marked("one"))
        until("it is said", lambda: slower in process.log.read_text())
        world.delete("one")
        until("it is released", lambda: world.get("one") is None)
        assert process.number("knell_source_problem") == 0


def test_what_is_printed_can_be_applied_where_there_is_nothing_yet(world: Declared) -> None:
    """Neither the Namespace of the service account nor that of the Leases is there."""
    account, home, leases = f"knell-{world.home}", f"{world.home}-account", f"{world.home}-leases"
    config = world.config("admin", watch={"namespace": leases})
    answer = world.knell(config, "role", "--account", account, "--namespace", home)
    apply(world, answer.out)
    try:
        assert answer.err == ""
        assert world.api.kube.get(f"/api/v1/namespaces/{home}/serviceaccounts/{account}") is not None
        assert world.api.kube.get(f"{RBAC}/namespaces/{leases}/roles/{account}") is not None
        # Once more, and nothing stands in its way.
        apply(world, answer.out)
        found = world.knell(config, "doctor", "--output", "json").json["findings"]
        assert {one["state"] for one in found if one["check"] == "namespace"} == {"fine"}
    finally:
        clear(world)


def test_a_namespace_of_others_is_never_printed_but_named(world: Declared) -> None:
    """Who deletes what was applied would delete it with everything in it."""
    tenant = f"{world.home}-tenant"
    config = world.config("admin", namespaces=[tenant])
    answer = world.knell(config, "role", "--account", f"knell-{world.home}", "--output", "json")
    made = answer.json["items"]
    assert [one["metadata"]["name"] for one in made if one["kind"] == "Namespace"] == [world.home]
    assert made[0]["kind"] == "Namespace"
    assert "labels" not in made[0]["metadata"]
    places = [one["metadata"].get("namespace", "") for one in made]
    assert set(places[places.index(tenant) :]) == {tenant}, "what can't be applied yet stands last"
    assert f"Roles in {tenant} are among these" in answer.err


def protect(world: Declared, value: str | None) -> None:
    body = {"metadata": {"annotations": {"knell.dev/prevent-delete": value}}}
    world.api.kube.patch(f"/api/v1/namespaces/{world.namespace}", body)


def confine(world: Declared) -> None:
    """As roles were that knew nothing of watching Namespaces."""
    path = f"{PLACES['ClusterRole']}/knell-{world.home}"
    found = world.api.kube.get(path)
    assert found is not None
    rules = found["rules"]
    for rule in rules:
        if rule["resources"] == ["namespaces"]:
            rule["verbs"] = ["get"]
    world.api.kube.patch(path, {"rules": rules})


@contextmanager
def running(
    world: Declared, config: Path, but: str = "", *, command: str = "run", **variables: str
) -> Iterator[Process]:
    """`knell run`, from the first complete list to an orderly end, in which nothing was forbidden, but for that."""
    process = world.start(config, command, **variables)
    try:
        process.until_ready()
        until("it watches", lambda: process.number("knell_source_relists_total") >= 1)
        yield process
        process.process.send_signal(signal.SIGTERM)
        assert process.end(AT_ONCE) == 0
    finally:
        process.process.kill()
        process.process.wait()
        clear(world)
    lines = process.log.read_text().splitlines()
    assert [line for line in lines if "orbidden" in line and not (but and but in line)] == []


def condition(world: Declared, name: str) -> Any:
    conditions = world.get(name).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == CONDITION), None)


def events(world: Declared, name: str) -> list[Any]:
    found: Any = world.api.kube.get(f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events")
    return [one for one in found["items"] if one["regarding"]["name"] == name]


def test_the_role_grants_nothing_else(world: Declared) -> None:
    """What a thief of the token might like to do."""
    account = grant(world, world.config(namespaces=[world.namespace]))
    elsewhere = world.api.namespace()
    world.create("one")
    try:
        until("it is granted", lambda: account.kube.request("GET", world.crd.path(world.namespace)).status == 200)
        forbidden = [
            ("GET", "/api/v1/secrets"),
            ("GET", f"/api/v1/namespaces/{world.home}/secrets"),
            ("GET", f"/api/v1/namespaces/{world.home}/configmaps"),
            ("GET", f"/api/v1/namespaces/{world.home}/configmaps/kube-root-ca.crt"),
            ("GET", "/apis/coordination.k8s.io/v1/leases"),
            ("GET", f"/apis/coordination.k8s.io/v1/namespaces/{elsewhere}/leases"),
            ("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{world.home}/leases"),
            ("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{world.home}/leases/another"),
            ("DELETE", f"/api/v1/namespaces/{world.home}/configmaps/another"),
            ("GET", world.crd.path(elsewhere)),
            ("DELETE", world.crd.path(world.namespace, "one")),
            ("DELETE", world.crd.own_path),
            ("DELETE", f"/api/v1/namespaces/{world.namespace}"),
            ("GET", f"{RBAC}/clusterroles"),
        ]
        seen = {(method, path): account.kube.request(method, path).status for method, path in forbidden}
        assert seen == dict.fromkeys(forbidden, 403)
    finally:
        clear(world)


def test_no_rule_has_a_wildcard(world: Declared) -> None:
    for changes in ({}, {"namespaces": [world.namespace]}, {"mode": "observe"}, {"shares": 4}):
        settings = load(world.config(**changes), {})
        for one in manifests(settings, "here", Holder(world.home)):
            for rule in one.get("rules", []):
                words = [word for key in ("apiGroups", "resources", "verbs") for word in rule[key]]
                assert not any("*" in word for word in words), rule
                if "secrets" in rule["resources"]:
                    assert rule["resourceNames"]


def test_what_is_shipped_is_what_its_settings_make() -> None:
    settings = load(SHIPPED / "settings.yaml", {})
    assert {one.resource for one in settings.sources.values()} == {kind.resource for kind in KINDS}
    for cluster in settings.clusters:
        made = [*own_namespaces(settings, Holder(settings.watch.namespace)), *manifests(settings, cluster)]
        assert (SHIPPED / f"{cluster}.yaml").read_text() == as_yaml(made)


def test_a_kubeconfig_in_a_secret_is_the_only_secret_it_may_read(world: Declared) -> None:
    config = world.config(
        clusters={
            "here": {"kubeconfig": str(world.api.kubeconfig(world.folder / "admin"))},
            "there": {"via": "here", "secret": f"{world.namespace}/remote/kubeconfig"},
        },
        sources={"widgets": {"resource": world.crd.resource, "collector": "none", "cluster": "there"}},
    )
    made = msgspec.json.decode(world.knell(config, "role", "--cluster", "here", "--output", "json").out)["items"]
    rules = [rule for one in made for rule in one.get("rules", []) if "secrets" in rule["resources"]]
    assert rules == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["remote"]}]
    assert not any(world.crd.plural in rule["resources"] for one in made for rule in one.get("rules", []))
