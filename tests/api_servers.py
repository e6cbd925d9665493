"""Kubernetes API servers for tests, and the fixtures that start each kind once per test process.
`make test` uses the embedded one, `make test-long` also the real one where it has been built. KNELL_TEST_API (real,
embedded) requires kinds: one that can't be started is then a failure, and the others are not used."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol, Self

import pytest

from service.settings.sources import ClusterSettings
from standins.controlplane import ControlPlane, NoControlPlane, available, find_programs
from tests.crd_stock import CrdStock
from tests.kube import Crd, Kube

VARIABLE: Final = "KNELL_TEST_API"
KINDS: Final = ("real", "embedded")
_USED: Final = "API server"


class ApiServer(Protocol):
    """What the real control plane and the embedded API have in common."""

    @property
    def url(self) -> str: ...
    @property
    def token(self) -> str: ...
    @property
    def ca(self) -> Path | None: ...
    def kubeconfig(self, path: Path) -> Path: ...
    def start(self) -> Self: ...
    def stop(self) -> None: ...


class TestApi:
    """A running server that tests share, as one test sees it: what it makes has names of its own, so none sees
    another's. Its kinds go with the test, and their objects with them; its Namespaces go with the server."""

    __test__ = False

    def __init__(self, kind: str, server: ApiServer, stock: CrdStock | None = None) -> None:
        self.kind = kind
        self.server = server
        self._stock = stock
        self.kube = Kube(server.url, server.token, server.ca)
        self._kinds: list[Crd] = []

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def token(self) -> str:
        return self.server.token

    @property
    def ca(self) -> Path | None:
        return self.server.ca

    def kubeconfig(self, path: Path) -> Path:
        return self.server.kubeconfig(path)

    def settings(self, folder: Path) -> ClusterSettings:
        """Settings that lead to this server as its admin, by a kubeconfig in that folder."""
        return ClusterSettings(kubeconfig=self.kubeconfig(folder / f"{self.kind}.kubeconfig"), context="local")

    def namespace(self, **annotations: str) -> str:
        """Makes one and says its name."""
        name = f"t{uuid.uuid4().hex[:10]}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}}
        self.kube.create("/api/v1/namespaces", body)
        return name

    def crd(self, *, scope: str = "Namespaced", versions: tuple[str, ...] = ("v1",)) -> Crd:
        """One of the test's own that accepts everything and has a status, and is served."""
        if self._stock is not None and (scope, versions) == ("Namespaced", ("v1",)):
            crd = self._stock.take()
        else:
            crd = Crd(group="knell.test", plural=f"widgets{uuid.uuid4().hex[:8]}", scope=scope, versions=versions)
            self.kube.install(crd)
        self._kinds.append(crd)
        return crd

    def clear(self) -> None:
        """Deletes the test's kinds, without waiting for it. A kind with objects that a finalizer holds stays until the
        server stops, as do Namespaces: a real server would look for what is left in them over and over, and the few
        workers of its CRD controller would have no time for others."""
        for crd in self._kinds:
            if not self._held(crd):
                self.kube.request("DELETE", crd.own_path)

    def _held(self, crd: Crd) -> bool:
        found = self.kube.request("GET", crd.path()).body
        items = found.get("items") or [] if isinstance(found, dict) else []
        return any(item["metadata"].get("finalizers") for item in items)


def demanded() -> list[str]:
    words = [word.strip() for word in os.environ.get(VARIABLE, "").split(",") if word.strip()]
    unknown = sorted(set(words) - set(KINDS))
    if unknown:
        raise pytest.UsageError(f"{VARIABLE}: unknown {', '.join(unknown)}; allowed: {', '.join(KINDS)}")
    return [kind for kind in KINDS if kind in words]


def kinds() -> list[str]:
    """A demanded kind is always in the list: if it cannot be started, its tests fail instead of vanishing."""
    return demanded() or [kind for kind in KINDS if kind != "real" or available()]


@pytest.fixture(scope="session")
def real_api() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="session")
def embedded_api() -> Iterator[ApiServer]:
    from standins.kubernetes_api import EmbeddedApi

    with EmbeddedApi() as api:
        yield api


@pytest.fixture(scope="session")
def real_stock(real_api: ControlPlane) -> CrdStock:
    return CrdStock(Kube(real_api.url, real_api.token, real_api.ca))


def _lent(request: pytest.FixtureRequest, kind: str) -> Iterator[TestApi]:
    request.node.user_properties.append((_USED, kind))
    stock = request.getfixturevalue("real_stock") if kind == "real" else None
    lent = TestApi(kind, request.getfixturevalue(f"{kind}_api"), stock)
    yield lent
    lent.clear()


def each_kind() -> list[Any]:
    """Parameters of fixtures that start a server: the embedded one in `make test`, the real one in `make test-long`."""
    return [pytest.param(kind, marks=[pytest.mark.long] if kind == "real" else []) for kind in kinds()]


@pytest.fixture(params=each_kind())
def api(request: pytest.FixtureRequest) -> Iterator[TestApi]:
    """A test that takes this runs on every kind of server. It must neither stop nor restart it: others use it, too."""
    yield from _lent(request, request.param)


def need_real() -> None:
    """For tests, and whole modules of them, that only the real control plane can pass: left out where it is not built,
    and where other kinds alone are demanded. Where it is demanded they go on, and fail for want of it."""
    wanted = demanded()
    if wanted and "real" not in wanted:
        pytest.skip(f"needs the real control plane: {VARIABLE}={','.join(wanted)} excludes it", allow_module_level=True)
    if not wanted and not available():
        reason = f"needs the real control plane: run `make controlplane` once ({VARIABLE}=real makes this a failure)"
        pytest.skip(reason, allow_module_level=True)


@pytest.fixture
def plane(request: pytest.FixtureRequest) -> ControlPlane:
    """The shared real control plane. A test that restarts or compacts starts one of its own."""
    need_real()
    request.node.user_properties.append((_USED, "real"))
    shared: ControlPlane = request.getfixturevalue("real_api")
    return shared


def summary(properties: Iterator[tuple[str, object]]) -> str:
    """Which servers the tests were on, in a line; nothing if none of them needed one."""
    used = {str(value) for name, value in properties if name == _USED}
    return "; ".join(_description(kind) for kind in KINDS if kind in used)


def _description(kind: str) -> str:
    if kind == "real":
        try:
            return f"the real control plane ({find_programs().origin})"
        except NoControlPlane:
            return "the real control plane, which is not there"
    if available() or demanded():
        return "the embedded API"
    return "the embedded API (the real one is not built: `make controlplane`)"
