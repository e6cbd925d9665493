"""Shared API servers of the tests: each test gets names and a kubeconfig of its own."""

from pathlib import Path

import msgspec
import pytest

from tests.api_servers import TestApi, summary
from tests.kube import wait_until

pytestmark = pytest.mark.long


def test_a_test_has_a_namespace_and_a_kind_of_its_own_while_it_runs(api: TestApi) -> None:
    kube, mine = api.kube, TestApi(api.kind, api.server)
    namespace, crd = mine.namespace(owner="me"), mine.crd()
    assert crd.resource != api.crd().resource
    found = kube.get(f"/api/v1/namespaces/{namespace}")
    assert found is not None
    assert found["metadata"]["annotations"] == {"owner": "me"}
    kube.create(crd.path(namespace), crd.body("one", labels={"a": "b"}))
    listed = kube.get(crd.path(namespace) + "?labelSelector=a%3Db")
    assert listed is not None
    assert [item["metadata"]["name"] for item in listed["items"]] == ["one"]

    mine.clear()
    wait_until("the kind is gone", lambda: kube.get(crd.own_path) is None)


def test_a_kind_on_the_real_server_was_there_before_a_test_asks_for_it(api: TestApi) -> None:
    if api.kind != "real":
        pytest.skip("the embedded API takes the first object of a kind at once: nothing is made ahead")
    first = api.crd()
    listed = api.kube.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert listed is not None
    there = {item["metadata"]["name"] for item in listed["items"]}
    second = api.crd()
    assert second.resource in there - {first.resource}
    assert api.kube.request("GET", second.path()).status == 200


def test_settings_lead_to_the_server(api: TestApi, tmp_path: Path) -> None:
    settings = api.settings(tmp_path)
    assert settings.kubeconfig is not None
    config = msgspec.yaml.decode(settings.kubeconfig.read_bytes())
    assert [context["name"] for context in config["contexts"]] == [settings.context]
    assert config["clusters"][0]["cluster"]["server"] == api.url


def test_the_last_line_of_a_run_names_the_servers_that_were_used(api: TestApi) -> None:
    used = summary(iter([("API server", api.kind), ("something else", "entirely")]))
    assert used.startswith("the real control plane") == (api.kind == "real")
    assert summary(iter([])) == ""
