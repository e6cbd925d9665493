"""The embedded API server as tests and the demo use it, from synchronous or asynchronous code.
It runs in a thread with its own event loop; its state stays in this object, so it can be stopped and started again."""

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from standins.kubernetes_api import token_requests
from standins.kubernetes_api.admission import Admission
from standins.kubernetes_api.api_resources import NAMESPACES
from standins.kubernetes_api.authorization import MASTERS, AccessRule
from standins.kubernetes_api.controllers import Controllers
from standins.kubernetes_api.creation import create
from standins.kubernetes_api.server import ApiServer
from standins.kubernetes_api.state import ClusterState
from standins.kubernetes_api.store import SavedState
from standins.kubernetes_api.verbs import Verbs
from standins.ports import free_ports

T = TypeVar("T")

_START_ATTEMPTS: Final = 5
_FIRST_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_SEED_STEP: Final = 500


class EmbeddedApi:
    """Methods block; only `seed` of very many objects takes long. `ca` is None: it is plain http."""

    def __init__(
        self,
        *,
        history: int = 50_000,
        bookmark_every: timedelta = timedelta(minutes=1),
        refuse_old_watches: bool = False,
        port: int = 0,
    ) -> None:
        """`history` is how many changes of each resource a watch can go back. A watch that begins before that gets an
        ERROR event, or HTTP 410 with `refuse_old_watches`, as from servers without a watch cache. `port` 0 is any free
        one."""
        self.token = secrets.token_hex(16)
        self.ca: Path | None = None
        self._state = ClusterState(history)
        admission = Admission(self._state)
        self._controllers = Controllers(self._state, admission)
        verbs = Verbs(self._state, self._controllers, admission, bookmark_every, refuse_old_watches=refuse_old_watches)
        self._server = ApiServer(self._state, self._controllers, admission, verbs)
        self._port = port
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._state.authorizer.add(self.token, "admin", (MASTERS,), ())
        for name in _FIRST_NAMESPACES:
            create(self._state, NAMESPACES, "v1", "", {"metadata": {"name": name}})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Starts on a free port, unless one was given; afterwards on the same port. Raises OSError if it is taken."""
        if self._thread is not None:
            return self
        first = not self._port
        for attempt in range(_START_ATTEMPTS):
            if first:
                (self._port,) = free_ports(1)
            try:
                self._launch()
            except OSError:
                if not first or attempt == _START_ATTEMPTS - 1:
                    raise
            else:
                break
        return self

    def stop(self) -> None:
        """Ends watches and refuses connections; the state is kept for the next start."""
        if self._thread is None or self._loop is None or self._stop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._thread = self._loop = self._stop = None

    # The same methods as ControlPlane has, so that a test can interrupt either.
    def stop_apiserver(self) -> None:
        self.stop()

    def start_apiserver(self) -> None:
        self.start()

    def restart_apiserver(self) -> None:
        self.stop()
        self.start()

    async def revive_apiserver(self) -> None:
        await asyncio.to_thread(self.restart_apiserver)

    def kubeconfig(self, path: Path, *, token: str | None = None) -> Path:
        """Writes a kubeconfig with the context `local`, for the admin or for a token."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": {"server": self.url}}],
            "users": [{"name": "local", "user": {"token": self.token if token is None else token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
            "current-context": "local",
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(msgspec.yaml.encode(config))
        return path

    def add_token(self, token: str, user: str, groups: Sequence[str] = (), rules: Sequence[AccessRule] = ()) -> None:
        """Adds a token of a user, with the permissions of these rules and of RBAC objects."""
        self._call(lambda: self._state.authorizer.add(token, user, groups, rules))

    def remove_token(self, token: str) -> None:
        self._call(lambda: self._state.authorizer.remove(token))

    def token_of(self, namespace: str, service_account: str) -> str:
        """A fresh token of a service account."""
        issued = self._call(lambda: token_requests.issue(self._state, namespace, service_account, b""))
        return str(issued["status"]["token"])

    def compact(self, *, end_watches: bool = False) -> int:
        """Drops history and list snapshots: every older resourceVersion and continue token gets 410. Running watches
        go on, unless `end_watches` ends them with that 410 as an ERROR event."""

        def forget() -> int:
            self._state.store.compact()
            if end_watches:
                self._state.store.end_readers("expired")
            return self._state.store.version

        return self._call(forget)

    def save(self) -> SavedState:
        """All objects, for `restore`."""
        return self._call(self._state.store.save)

    def restore(self, saved: SavedState) -> None:
        """Goes back to a saved state, resourceVersions included, as after an etcd restore."""

        def exchange() -> None:
            self._state.store.restore(saved)
            self._controllers.rebuild()

        self._call(exchange)

    def end_watches(self) -> None:
        """Closes every running watch in an orderly way, as a server does at its timeout."""
        self._call(lambda: self._state.store.end_readers("closed"))

    def seed(self, resource: str, version: str, documents: Iterable[dict[str, Any]]) -> int:
        """Creates objects without HTTP, in batches, and returns how many. `resource` is `plural.group`; each document
        names its namespace. Raises StatusError like a request would."""
        plural, _, group = resource.partition(".")
        count = 0
        remaining = iter(documents)
        while step := list(islice(remaining, _SEED_STEP)):
            self._call(partial(self._seed, group, plural, version, step))
            count += len(step)
        return count

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _seed(self, group: str, plural: str, version: str, documents: list[dict[str, Any]]) -> None:
        resource = self._state.registry.served(group, version, plural)
        if resource is None:
            raise LookupError(f"{plural} of group {group!r} is not served in version {version}")
        for document in documents:
            shaped = {"apiVersion": resource.api_version(version), "kind": resource.kind, **document}
            create(self._state, resource, version, document["metadata"].get("namespace", ""), shaped)

    def _call(self, action: Callable[[], T]) -> T:
        """Runs an action on the thread of the event loop, if it is running."""
        loop = self._loop
        if loop is None:
            return action()
        result: Future[T] = Future()

        def act() -> None:
            try:
                result.set_result(action())
            except BaseException as error:  # noqa: BLE001 - it is raised again in the caller
                result.set_exception(error)

        loop.call_soon_threadsafe(act)
        return result.result()

    def _launch(self) -> None:
        started: Future[None] = Future()
        thread = threading.Thread(target=self._run, args=(started,), name="embedded-api", daemon=True)
        thread.start()
        try:
            started.result()
        except BaseException:
            thread.join()
            raise
        self._thread = thread

    def _run(self, started: "Future[None]") -> None:
        try:
            asyncio.run(self._serve(started))
        except BaseException as error:
            if started.done():
                raise
            self._loop = self._stop = None
            started.set_exception(error)

    async def _serve(self, started: "Future[None]") -> None:
        loop, stop, ready = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        serving = loop.create_task(self._server.serve(self._port, ready, stop))
        waiting = loop.create_task(ready.wait())
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if ready.is_set():
            self._loop, self._stop = loop, stop
            started.set_result(None)
        waiting.cancel()
        await serving
