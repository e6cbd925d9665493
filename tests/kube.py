"""Blocking Kubernetes client for the setup and the assertions of tests.
It shares no code with the client under test."""

import contextlib
import http.client
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

_STEP: Final = 0.02


class KubeRefused(Exception):
    """The server said no; the message is the server's."""


@dataclass(frozen=True, slots=True)
class KubeResponse:
    status: int
    body: Any

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", "")) if isinstance(self.body, dict) else ""


@dataclass(frozen=True, slots=True)
class Crd:
    """A CustomResourceDefinition. Its objects may hold anything, or, with `texts`, only texts at these paths: other
    fields are pruned by a real API server. `[]` is an item of a list, as in `status.conditions[].type`."""

    group: str
    plural: str
    scope: str = "Namespaced"
    versions: tuple[str, ...] = ("v1",)
    # Where it is not the plural without its s.
    called: str = ""
    texts: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return self.called or self.plural.removesuffix("s").capitalize()

    @property
    def resource(self) -> str:
        """As the settings of a source name it."""
        return f"{self.plural}.{self.group}"

    @property
    def own_path(self) -> str:
        return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{self.resource}"

    def path(self, namespace: str = "", name: str = "") -> str:
        """Of its objects, in the version that is stored."""
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"/apis/{self.group}/{self.versions[0]}{inside}/{self.plural}" + (f"/{name}" if name else "")

    def body(self, name: str, **metadata: object) -> dict[str, object]:
        return {
            "apiVersion": f"{self.group}/{self.versions[0]}",
            "kind": self.kind,
            "metadata": {"name": name, **metadata},
            "spec": {},
        }

    def definition(self) -> dict[str, object]:
        anything: dict[str, object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schema = _schema(self.texts) if self.texts else anything
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.resource},
            "spec": {
                "group": self.group,
                "scope": self.scope,
                "names": {"plural": self.plural, "singular": self.kind.lower(), "kind": self.kind},
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": version == self.versions[0],
                        "schema": {"openAPIV3Schema": schema},
                        "subresources": {"status": {}},
                    }
                    for version in self.versions
                ],
            },
        }


def _schema(texts: Sequence[str]) -> dict[str, object]:
    """Of an object with texts at these paths, and nothing else."""
    found: dict[str, list[str]] = {}
    for path in texts:
        name, _, rest = path.partition(".")
        found.setdefault(name, []).append(rest)
    properties: dict[str, object] = {}
    for name, rests in found.items():
        below = [rest for rest in rests if rest]
        one = _schema(below) if below else {"type": "string"}
        properties[name.removesuffix("[]")] = {"type": "array", "items": one} if name.endswith("[]") else one
    return {"type": "object", "properties": properties}


def wait_until(what: str, holds: Callable[[], bool], within: timedelta = timedelta(seconds=100)) -> None:
    deadline = time.monotonic() + within.total_seconds()
    while not holds():
        assert time.monotonic() < deadline, f"waited {within.total_seconds():g} s in vain until {what}"
        time.sleep(_STEP)


class Kube:
    """One connection per request: slow and simple."""

    def __init__(self, url: str, token: str, ca: Path | None) -> None:
        self._address = urlsplit(url)
        self._token = token
        self._context = ssl.create_default_context(cafile=ca) if self._address.scheme == "https" else None

    def request(self, method: str, path: str, body: object = None, *, patch: str = "") -> KubeResponse:
        """`patch` is the kind of a patch: merge, json, strategic-merge."""
        status, text = self._read(method, path, body, f"application/{f'{patch}-patch+' if patch else ''}json")
        try:
            return KubeResponse(status, msgspec.json.decode(text))
        except msgspec.DecodeError:
            return KubeResponse(status, text.decode(errors="replace"))

    def create(self, path: str, body: object) -> Any:
        return self._accepted("POST", path, body)

    def delete(self, path: str) -> Any:
        return self._accepted("DELETE", path)

    def patch(self, path: str, body: object, kind: str = "merge") -> Any:
        return self._accepted("PATCH", path, body, patch=kind)

    def get(self, path: str) -> Any | None:
        """None for 404 only. A server that is still filling its cache of a kind says 429, and is asked again."""
        answers: list[KubeResponse] = []

        def answered() -> bool:
            answers.append(self.request("GET", path))
            return answers[-1].status != 429

        wait_until(f"GET {path} is answered", answered)
        answer = answers[-1]
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise KubeRefused(f"GET {path}: {answer.status} {answer.body}")
        return answer.body

    def install(self, crd: Crd) -> None:
        self.define(crd)
        self.wait_until_served(crd)

    def uninstall(self, crd: Crd) -> None:
        """Takes away the kind of that name, if there is one, in whatever versions a test has made it, and its objects,
        whatever finalizers they have."""
        found = self.get(crd.own_path)
        if found is None:
            return
        made = replace(crd, versions=tuple(one["name"] for one in found["spec"]["versions"]))
        # A policy or webhook of the test may be in effect for another moment.
        wait_until(f"{crd.resource} may be deleted", lambda: self.request("DELETE", crd.own_path).status in (200, 404))

        def gone() -> bool:
            objects = self.request("GET", made.path()).body
            for one in (objects.get("items") or []) if isinstance(objects, dict) else []:
                path = made.path(one["metadata"].get("namespace", ""), one["metadata"]["name"])
                with contextlib.suppress(Exception):
                    self.request("PATCH", path, {"metadata": {"finalizers": []}}, patch="merge")
            return self.get(crd.own_path) is None

        wait_until(f"{crd.resource} is gone", gone)

    def define(self, crd: Crd) -> None:
        self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd.definition())

    def wait_until_served(self, crd: Crd) -> None:
        """Its objects can be listed, which is a moment after it is established."""
        wait_until(
            f"{crd.resource} is served",
            lambda: self._established(crd) and self.request("GET", crd.path()).status == 200,
        )

    def watch(self, path: str, version: str, *, seconds: int = 1) -> list[Any]:
        """The events of a watch from that resourceVersion, which the server ends after so many seconds."""
        body = self._read("GET", f"{path}?watch=1&resourceVersion={version}&timeoutSeconds={seconds}")[1]
        return [msgspec.json.decode(line) for line in body.splitlines()]

    def _established(self, crd: Crd) -> bool:
        found = self.get(crd.own_path) or {}
        conditions = found.get("status", {}).get("conditions") or []
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    def _accepted(self, method: str, path: str, body: object = None, *, patch: str = "") -> Any:
        answer = self.request(method, path, body, patch=patch)
        if answer.status not in (200, 201, 202):
            raise KubeRefused(f"{method} {path}: {answer.status} {answer.body}")
        return answer.body

    def _read(self, method: str, path: str, body: object = None, kind: str = "application/json") -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind, "Accept": "application/json"}
        connection = self._connection()
        try:
            connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=100)
        return http.client.HTTPSConnection(host, port, timeout=100, context=self._context)
