"""When a source of clusters on AWS counts as enabled: from the first time with its feature on, and not before."""

from pathlib import Path
from typing import Any

import pytest

from service.sources.capa import AWS_FINALIZER
from tests.api_servers import TestApi
from tests.capi import AWS_CLUSTERS, CapiObjects
from tests.integration.knell_process import until
from tests.integration.test_cli_role import running
from tests.integration.widget_source import WidgetSource, widget_source
from tests.redis_servers import TestServer

pytestmark = pytest.mark.long


@pytest.fixture
def widgets(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> WidgetSource:
    return widget_source(api, embedded_server, tmp_path, AWS_CLUSTERS)


def settings(widgets: WidgetSource, *, on: bool) -> Path:
    source = {"resource": AWS_CLUSTERS.resource, "collector": "capa", "namespaces": [widgets.namespace]}
    path = widgets.config("on" if on else "off", sources={"aws": source})
    path.write_text(f"{path.read_text()}features: {{ExternalResourceGC: {str(on).lower()}}}\n")
    return path


def moments(widgets: WidgetSource) -> Any:
    found = widgets.api.kube.get(f"/api/v1/namespaces/{widgets.home}/configmaps/knell-sources")
    return {} if found is None else found.get("data", {})


def test_a_source_is_enabled_with_its_feature_and_not_before(widgets: WidgetSource) -> None:
    capi = CapiObjects(widgets.api.kube, widgets.namespace)
    capi.unmanaged("before")
    with running(widgets, settings(widgets, on=False), command="watch") as process:
        until("it is said", lambda: "feature is off" in process.log.read_text())
        assert moments(widgets) == {}
        assert process.number("knell_source_problem") == 0
    before = capi.get(AWS_CLUSTERS, "before")["metadata"]
    # Objects have whole seconds, and one of the same second is new.
    until("the next second has come", lambda: _now(widgets) > before["creationTimestamp"])
    with running(widgets, settings(widgets, on=True), command="watch"):
        assert set(moments(widgets)) == {"aws"}
        assert moments(widgets)["aws"] > before["creationTimestamp"]
        capi.unmanaged("after")
        until("the new one is marked", lambda: AWS_FINALIZER in capi.finalizers(AWS_CLUSTERS, "after"))
        assert capi.finalizers(AWS_CLUSTERS, "before") == []
    kept = moments(widgets)
    with running(widgets, settings(widgets, on=False), command="watch"):
        assert moments(widgets) == kept
    capi.patch(AWS_CLUSTERS, "after", {"metadata": {"finalizers": []}})


def _now(widgets: WidgetSource) -> str:
    """By the server's clock, as objects are stamped."""
    made = widgets.api.kube.create(
        f"/api/v1/namespaces/{widgets.home}/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "now-"}},
    )
    return str(made["metadata"]["creationTimestamp"])
