"""When a source of clusters on AWS counts as enabled: from the first moment with its feature on, and not before."""

from pathlib import Path
from typing import Any

import pytest

from service.contract.aws import AWS_FINALIZER
from tests.capi import AWS_CLUSTERS, Capi
from tests.clusters import TestApi
from tests.integration.declared import Declared, declare
from tests.integration.test_role import running
from tests.integration.test_work_command import until
from tests.servers import TestServer

pytestmark = pytest.mark.long


@pytest.fixture
def world(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> Declared:
    return declare(api, embedded_server, tmp_path, AWS_CLUSTERS)


def settings(world: Declared, *, on: bool) -> Path:
    source = {"resource": AWS_CLUSTERS.resource, "collector": "capa", "namespaces": [world.namespace]}
    path = world.config("on" if on else "off", sources={"aws": source})
    path.write_text(f"{path.read_text()}features: {{ExternalResourceGC: {str(on).lower()}}}\n")
    return path


def moments(world: Declared) -> Any:
    found = world.api.kube.get(f"/api/v1/namespaces/{world.home}/configmaps/knell-sources")
    return {} if found is None else found.get("data", {})


def test_a_source_is_enabled_with_its_feature_and_not_before(world: Declared) -> None:
    capi = Capi(world.api.kube, world.namespace)
    capi.unmanaged("before")
    with running(world, settings(world, on=False), command="watch") as process:
        until("it is said", lambda: "feature is off" in process.log.read_text())
        assert moments(world) == {}
        assert process.number("knell_source_problem") == 0
    before = capi.get(AWS_CLUSTERS, "before")["metadata"]
    # Objects have whole seconds, and one of the same second is new.
    until("the next second has come", lambda: _now(world) > before["creationTimestamp"])
    with running(world, settings(world, on=True), command="watch"):
        assert set(moments(world)) == {"aws"}
        assert moments(world)["aws"] > before["creationTimestamp"]
        capi.unmanaged("after")
        until("the new one is marked", lambda: AWS_FINALIZER in capi.finalizers(AWS_CLUSTERS, "after"))
        assert capi.finalizers(AWS_CLUSTERS, "before") == []
    kept = moments(world)
    with running(world, settings(world, on=False), command="watch"):
        assert moments(world) == kept
    capi.patch(AWS_CLUSTERS, "after", {"metadata": {"finalizers": []}})


def _now(world: Declared) -> str:
    """By the server's clock, as objects are stamped."""
    made = world.api.kube.create(
        f"/api/v1/namespaces/{world.home}/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "now-"}},
    )
    return str(made["metadata"]["creationTimestamp"])
