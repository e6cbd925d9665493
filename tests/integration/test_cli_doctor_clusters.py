"""`knell doctor` looks at the clusters of the settings, too: the way in, the identity, and what the sources need."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from service.engine.installation import Installation
from service.settings import load
from service.watching.clusters import Identities
from standins.api import EmbeddedApi
from tests.clusters import TestApi
from tests.integration.declared import Declared, declare
from tests.integration.operating import Answer, environment
from tests.integration.test_role import clear, confine, grant, kubeconfig
from tests.servers import TestServer


@pytest.fixture
def world(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> Declared:
    return declare(api, embedded_server, tmp_path)


def examined(world: Declared, config: Path, cluster: str = "here") -> tuple[Answer, dict[str, dict[str, Any]]]:
    """What was found of one cluster, by what was checked."""
    answer = world.knell(config, "doctor", "--output", "json")
    found = [one for one in answer.json["findings"] if one["node"] == f"cluster {cluster}"]
    return answer, {one["check"]: one for one in found}


def told(world: Declared) -> str:
    """A server that does not say what credentials may do leaves it open; only the real one does."""
    return "fine" if world.api.kind == "real" else "unknown"


def test_a_cluster_with_everything_is_found_sound(world: Declared) -> None:
    answer, found = examined(world, world.config())
    assert {check: one["state"] for check, one in found.items()} == {
        "reachable": "fine", "identity": "fine", "namespace": "fine", "source widgets": "fine", "access": told(world),
    }  # fmt: skip
    assert (answer.code, answer.json["sound"]) == (0, True)
    assert "seen for the first time" in found["identity"]["what"]
    assert "in version v1" in found["source widgets"]["what"]
    if told(world) == "unknown":
        assert "not checked" in found["access"]["what"]
    everything = world.knell(world.config(), "doctor", "--all")
    assert (everything.code, "fine: reachable (cluster here): " in everything.out) == (0, True)


def test_settings_without_clusters_are_not_asked_about_any(world: Declared) -> None:
    path = world.folder / "bare.yaml"
    path.write_text("{}\n")
    answer = world.knell(path, "doctor", "--output", "json")
    assert answer.code == 0
    assert not [one for one in answer.json["findings"] if one["node"].startswith("cluster")]


async def test_a_cluster_that_is_another_one_than_it_was_is_wrong_and_asked_nothing_more(world: Declared) -> None:
    config = world.config()
    settings = load(config, environment(world.redis))
    installation = Installation(settings)
    try:
        await Identities(settings, installation).confirm("here", "another-uid")
    finally:
        await installation.aclose()
    answer, found = await asyncio.to_thread(examined, world, config)
    assert answer.code == 1
    assert {check: one["state"] for check, one in found.items()} == {"reachable": "fine", "identity": "wrong"}
    assert "has always had uid another-uid" in found["identity"]["what"]
    assert "knell clusters forget here" in found["identity"]["mend"]


def test_what_the_sources_need_is_missed_by_name(world: Declared) -> None:
    source = {"resource": world.crd.resource, "collector": "none"}
    config = world.config(
        sources={"widgets": source, "ghosts": {**source, "resource": "ghosts.knell.test"}},
        watch={"namespace": "nowhere-at-all"},
    )
    answer, found = examined(world, config)
    assert answer.code == 1
    assert found["namespace"]["state"] == "wrong"
    assert "knell role --cluster here | kubectl apply -f -" in found["namespace"]["mend"]
    assert (found["source widgets"]["state"], found["source ghosts"]["state"]) == ("fine", "warning")
    assert "sources.ghosts.resource" in found["source ghosts"]["mend"]


def test_a_kind_that_is_not_installed_is_only_a_warning(world: Declared) -> None:
    answer, found = examined(world, world.config(resource="ghosts.knell.test"))
    assert (answer.code, found["source widgets"]["state"]) == (0, "warning")


def test_a_cluster_that_does_not_answer_is_wrong_and_the_others_are_looked_at(world: Declared) -> None:
    here = {"kubeconfig": str(world.api.kubeconfig(world.folder / "admin")), "context": "local"}
    away = world.folder / "away"
    with EmbeddedApi() as gone:
        gone.kubeconfig(away)
    source = {"resource": world.crd.resource, "collector": "none", "cluster": "here"}
    config = world.config(
        clusters={"away": {"kubeconfig": str(away), "context": "local"}, "here": here}, sources={"widgets": source}
    )
    answer, found = examined(world, config, "away")
    assert answer.code == 1
    assert list(found) == ["reachable"]
    assert found["reachable"]["state"] == "wrong"
    assert "mend clusters.away" in found["reachable"]["mend"]
    assert examined(world, config)[1]["source widgets"]["state"] == "fine"


def test_what_a_role_lacks_is_named_with_how_to_mend_it(world: Declared) -> None:
    """The role was applied, and a source declared since."""
    added = world.api.crd()
    account = grant(world, world.config("admin"))
    try:
        here = {"kubeconfig": str(kubeconfig(world, account.token)), "context": "local"}
        source = {"resource": world.crd.resource, "collector": "none"}
        _, before = examined(world, world.config("before", clusters={"here": here}))
        sources = {"widgets": source, "more": {**source, "resource": added.resource}}
        answer, after = examined(world, world.config("after", clusters={"here": here}, sources=sources))
    finally:
        clear(world)
    assert before["access"]["state"] == told(world)
    assert after["reachable"]["state"] == after["identity"]["state"] == "fine"
    if told(world) == "unknown":
        assert after["access"]["state"] == "unknown"
        return
    assert (answer.code, after["access"]["state"]) == (1, "wrong")
    assert f"list {added.resource}" in after["access"]["what"]
    assert f"patch {added.resource}" in after["access"]["what"]
    assert f"get leases.coordination.k8s.io knell-more-0 in {world.home}" in after["access"]["what"]
    assert world.crd.resource not in after["access"]["what"]
    assert "knell role --cluster here | kubectl apply -f -" in after["access"]["mend"]


def test_a_role_that_only_lacks_what_makes_it_quicker_is_a_warning(world: Declared) -> None:
    account = grant(world, world.config("admin"))
    confine(world)
    try:
        here = {"kubeconfig": str(kubeconfig(world, account.token)), "context": "local"}
        answer, found = examined(world, world.config("account", clusters={"here": here}))
    finally:
        clear(world)
    assert answer.code == 0
    assert found["access"]["state"] == ("warning" if told(world) == "fine" else "unknown")
    if told(world) == "fine":
        assert "may not list namespaces, watch namespaces: " in found["access"]["what"]


def test_a_role_that_only_lacks_what_uninstall_needs_is_fine(world: Declared) -> None:
    account = grant(world, world.config("admin"))
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.home}/roles/knell-{world.home}-uninstall"
    world.api.kube.delete(role)
    try:
        here = {"kubeconfig": str(kubeconfig(world, account.token)), "context": "local"}
        answer, found = examined(world, world.config("account", clusters={"here": here}))
    finally:
        clear(world)
    assert (answer.code, found["access"]["state"]) == (0, told(world))
    if told(world) == "fine":
        assert f"may not delete configmaps knell-sources in {world.home}" in found["access"]["what"]
        assert "only `knell uninstall` needs that" in found["access"]["what"]


def test_credentials_that_may_do_nothing_are_told_which_role_they_need(world: Declared) -> None:
    account = f"/api/v1/namespaces/{world.home}/serviceaccounts"
    world.api.kube.create(account, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = world.api.kube.create(f"{account}/nobody/token", asked)["status"]["token"]
    here = {"kubeconfig": str(kubeconfig(world, token)), "context": "local"}
    answer, found = examined(world, world.config(clusters={"here": here}))
    assert (answer.code, found["reachable"]["state"]) == (1, "wrong")
    assert "knell role" in found["reachable"]["mend"]
    assert token not in answer.out


def test_settings_that_cannot_be_watched_are_told_before_anybody_tries(world: Declared) -> None:
    answer = world.knell(world.config(collector="nonesuch"), "doctor", "--output", "json")
    assert answer.code == 1
    (found,) = [one for one in answer.json["findings"] if one["check"] == "sources"]
    assert "nonesuch" in found["what"]


def test_without_redis_the_clusters_are_looked_at_all_the_same(world: Declared) -> None:
    nowhere = {"KNELL_REDIS_URL": "redis://127.0.0.1:1"}
    answer = world.knell(world.config(), "doctor", "--output", "json", variables=nowhere)
    found = {one["check"]: one for one in answer.json["findings"] if one["node"] == "cluster here"}
    assert answer.code == 1
    assert (found["identity"]["state"], found["source widgets"]["state"]) == ("unknown", "fine")
    assert answer.json["sound"] is False
