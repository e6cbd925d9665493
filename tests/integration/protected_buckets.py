"""A kind of ACK's group of S3 that only one test has, and `knell` commands about its objects."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.api_servers import TestApi
from tests.integration.command_line import CommandResult
from tests.integration.widget_source import WidgetSource, widget_source
from tests.kube import Crd
from tests.redis_servers import TestServer

PLAIN = "knell.dev/prevent-delete"
ACK = "services.k8s.aws/prevent-delete"


@dataclass(frozen=True, slots=True)
class ProtectedBuckets:
    """No source watches them."""

    widgets: WidgetSource
    crd: Crd

    @property
    def namespace(self) -> str:
        return self.widgets.namespace

    @property
    def kind(self) -> str:
        """The singular."""
        return self.crd.kind.lower()

    def knell(self, *words: str, config: Path | None = None) -> CommandResult:
        return self.widgets.knell(config or self.widgets.config(), *words)

    def create(self, name: str, **metadata: Any) -> Any:
        return self.widgets.api.kube.create(self.crd.path(self.namespace), self.crd.body(name, **metadata))

    def get(self, name: str) -> Any:
        return self.widgets.api.kube.get(self.crd.path(self.namespace, name))

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.get(name)["metadata"].get("annotations", {})
        return found

    def annotate(self, **annotations: str | None) -> None:
        """The Namespace."""
        body = {"metadata": {"annotations": annotations}}
        self.widgets.api.kube.patch(f"/api/v1/namespaces/{self.namespace}", body)

    def namespace_annotations(self) -> dict[str, str]:
        found: Any = self.widgets.api.kube.get(f"/api/v1/namespaces/{self.namespace}")
        annotations: dict[str, str] = found["metadata"].get("annotations", {})
        return annotations


@pytest.fixture
def buckets(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> Iterator[ProtectedBuckets]:
    crd = Crd(group="s3.services.k8s.aws", plural=f"buckets{uuid.uuid4().hex[:8]}s")
    api.kube.install(crd)
    yield ProtectedBuckets(widget_source(api, embedded_server, tmp_path), crd)
    for one in (api.kube.get(crd.path()) or {}).get("items") or []:
        path = crd.path(one["metadata"]["namespace"], one["metadata"]["name"])
        api.kube.patch(path, {"metadata": {"finalizers": None}})
    api.kube.delete(crd.own_path)
