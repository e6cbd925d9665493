"""A local control plane: etcd, kube-apiserver and kube-controller-manager on free ports of 127.0.0.1.
Every client needs a token, RBAC applies, and the admin's token is allowed everything."""

import asyncio
import http.client
import shutil
import ssl
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from standins.controlplane import etcd
from standins.controlplane.credentials import write_admin_token, write_signing_key
from standins.controlplane.etcd import restore_snapshot, save_snapshot
from standins.controlplane.flags import apiserver_flags, controller_flags, etcd_flags
from standins.controlplane.kubectl import run_kubectl, write_kubeconfig
from standins.controlplane.process import ControlPlaneProcess
from standins.controlplane.programs import NoControlPlane, Programs, find_programs
from standins.ports import free_ports

_START_ATTEMPTS: Final = 5
_IN_ORDER: Final = timedelta(seconds=5)
_A_MOMENT: Final = timedelta(milliseconds=500)


class ControlPlane:
    """The processes and their folder, which has their logs: `etcd.log`, `apiserver.log`, `controllers.log`.
    `stop` removes a temporary folder; a given one is kept with its data. Methods block (a start takes some seconds).
    Processes end with the thread that started them, so start them from a long-lived one.

    The garbage collector discovers a new CRD only after up to 30 s: for owner references that must cascade at once use
    built-in kinds."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        programs: Programs | None = None,
        controllers: bool = True,
        options: Mapping[str, str] | None = None,
        ready_within: timedelta = timedelta(seconds=60),
        port: int = 0,
    ) -> None:
        """`options` are further flags of kube-apiserver, without dashes; `port` is its port, 0 any free one."""
        self.programs = programs or find_programs()
        self.has_controllers = controllers and self.programs.controllers is not None
        self._temporary = tempfile.TemporaryDirectory(prefix="knell-") if folder is None else None
        self.folder = Path(self._temporary.name if self._temporary else folder or ".").resolve()
        self._options = dict(options or {})
        self._ready_within = ready_within
        self._etcd_port, self._port = 0, port
        self._given_port = port
        self.token = ""
        self.etcd = ControlPlaneProcess("etcd", self.folder)
        self.apiserver = ControlPlaneProcess("apiserver", self.folder)
        self.controllers = ControlPlaneProcess("controllers", self.folder)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca(self) -> Path:
        """CA of the server's certificate; kube-apiserver creates both at its first start."""
        return self.folder / "certificates" / "apiserver.crt"

    def start(self) -> Self:
        """Returns when everything is ready. After a failure nothing is left running."""
        try:
            self._prepare()
            self._start_etcd()
            self._start_apiserver()
            self._start_controllers()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Ends all processes and removes a temporary folder."""
        # Temporary data needs no orderly shutdown.
        grace_period = timedelta(0) if self._temporary is not None else _IN_ORDER
        for program in (self.controllers, self.apiserver, self.etcd):
            program.thaw()
            program.end(grace_period)
        if self._temporary is not None:
            self._temporary.cleanup()

    def stop_apiserver(self) -> None:
        """Cuts watches and refuses connections until `start_apiserver`."""
        self.apiserver.thaw()
        # After SIGTERM it waits a minute for open watches.
        self.apiserver.end(_A_MOMENT)

    def start_apiserver(self) -> None:
        """On the same port, with the same certificate and data."""
        self._launch_apiserver()
        self._wait_for_apiserver()

    def restart_apiserver(self) -> None:
        self.stop_apiserver()
        self.start_apiserver()

    async def revive_apiserver(self) -> None:
        """`restart_apiserver` for callers on an event loop. The process is started in this thread, with which it ends;
        only the waiting is done in another."""
        await asyncio.to_thread(self.stop_apiserver)
        self._launch_apiserver()
        await asyncio.to_thread(self._wait_for_apiserver)

    def compact(self) -> int:
        """Compacts every revision of etcd before the one returned.

        That alone may have no visible effect: kube-apiserver serves watches and lists from its own cache. To force a
        410, compact and then restart it (`restart_apiserver` or `revive_apiserver`): its new cache begins at the
        present, so watches and continued lists of earlier revisions get 410."""
        return etcd.compact(self._etcd_port)

    def save_snapshot(self, path: Path) -> None:
        """Saves the present state of etcd to a file with etcdctl."""
        if self.programs.etcdctl is None:
            raise NoControlPlane(f"there is no etcdctl ({self.programs.origin})")
        save_snapshot(self.programs.etcdctl, port=self._etcd_port, to=path)

    def restore_snapshot(self, path: Path, *, bump_revision: int = 0) -> None:
        """Restarts everything on the data of the snapshot, with the same URL, tokens and certificates. What was written
        since the snapshot is lost. `bump_revision` is added to later revisions, and those before count as compacted."""
        if self.programs.etcdutl is None:
            raise NoControlPlane(f"there is no etcdutl ({self.programs.origin})")
        restored = self.folder / "etcd-restored"
        restore_snapshot(self.programs.etcdutl, snapshot=path, to=restored, bump_revision=bump_revision)
        self.controllers.end()
        self.stop_apiserver()
        self.etcd.end()
        shutil.rmtree(self._etcd_data)
        restored.rename(self._etcd_data)
        self._start_etcd()
        self.start_apiserver()
        self._start_controllers()

    def kubectl(self, *arguments: str, stdin: str = "", token: str | None = None) -> str:
        """Output of the real kubectl; raises KubectlFailed with its error. Without a token, as admin."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="kubectl-") as folder:
            config = self.kubeconfig(Path(folder) / "config", token=token)
            return run_kubectl(self.programs.kubectl, arguments, kubeconfig=config, stdin=stdin)

    def kubeconfig(self, path: Path, *, token: str | None = None) -> Path:
        """Writes a kubeconfig with the context `local`, for the admin or for a token."""
        return write_kubeconfig(path, url=self.url, token=self.token if token is None else token, ca=self.ca)

    def token_of(self, namespace: str, service_account: str) -> str:
        """A fresh token of a service account, from the TokenRequest API."""
        return self.kubectl("create", "token", service_account, "--namespace", namespace).strip()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _etcd_data(self) -> Path:
        return self.folder / "etcd"

    @property
    def _signing_key(self) -> Path:
        return self.folder / "service-accounts.key"

    @property
    def _tokens(self) -> Path:
        return self.folder / "tokens.csv"

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._signing_key.exists():
            write_signing_key(self._signing_key)
        self.token = write_admin_token(self._tokens)

    def _start_etcd(self) -> None:
        for attempt in range(_START_ATTEMPTS):
            (self._etcd_port,) = free_ports(1)
            self.etcd.launch((*self.programs.etcd, *etcd_flags(self._etcd_port, self._etcd_data)))
            try:
                self.etcd.wait_until(lambda: etcd.answers(self._etcd_port), self._ready_within)
            except NoControlPlane:
                self.etcd.end()
                if attempt == _START_ATTEMPTS - 1 or not self.etcd.port_was_taken():
                    raise
            else:
                return

    def _start_apiserver(self) -> None:
        for attempt in range(_START_ATTEMPTS):
            if not self._given_port:
                (self._port,) = free_ports(1)
            try:
                self.start_apiserver()
            except NoControlPlane:
                self.apiserver.end()
                if not self.apiserver.port_was_taken():
                    raise
                if self._given_port:
                    raise NoControlPlane(f"port {self._port}: address already in use") from None
                if attempt == _START_ATTEMPTS - 1:
                    raise
            else:
                return

    def _launch_apiserver(self) -> None:
        flags = {
            **apiserver_flags(self._port, self._etcd_port),
            "cert-dir": str(self.ca.parent),
            "token-auth-file": str(self._tokens),
            "service-account-key-file": str(self._signing_key),
            "service-account-signing-key-file": str(self._signing_key),
            **self._options,
        }
        self.apiserver.launch((*self.programs.apiserver, *(f"--{name}={value}" for name, value in flags.items())))

    def _wait_for_apiserver(self) -> None:
        # The uid of this Namespace identifies a cluster; the server creates it a moment after it is ready.
        self.apiserver.wait_until(
            lambda: self._finds("/readyz") and self._finds("/api/v1/namespaces/kube-system"), self._ready_within
        )

    def _start_controllers(self) -> None:
        if not self.has_controllers or self.programs.controllers is None:
            return
        config = self.kubeconfig(self.folder / "controllers.kubeconfig")
        flags = controller_flags(config, self._signing_key, self.ca)
        self.controllers.launch((*self.programs.controllers, *flags))
        # Created by a controller: the controllers are running once it exists.
        self.controllers.wait_until(
            lambda: self._finds("/api/v1/namespaces/default/serviceaccounts/default"), self._ready_within
        )

    def _finds(self, path: str) -> bool:
        """Whether the admin gets a 200. False while the server is not up, or if the port belongs to another one."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=5, context=context)
            try:
                connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
                return connection.getresponse().status == 200
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return False
