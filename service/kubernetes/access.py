"""How a cluster is reached right now: address, TLS, proxy and the Authorization header, read again as they age.
Tokens rotate under a running process, so none is kept longer than a minute or than its own end."""

import asyncio
import base64
import binascii
import os
import ssl
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec
import structlog

from service.kubernetes import kubeconfig, plugins
from service.kubernetes.decoding import text_of_secret
from service.kubernetes.errors import ClusterError, Unavailable
from service.kubernetes.objects import SECRETS
from service.kubernetes.tls import TlsContexts
from service.masking import MASK
from service.settings import ClusterSettings
from service.settings.redis import Secret

if TYPE_CHECKING:
    from service.kubernetes.client import Cluster

log = structlog.get_logger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REREAD: Final = timedelta(minutes=1)
# After a failed reading the old credentials serve on, and the next reading comes soon.
_REREAD_SOON: Final = timedelta(seconds=5)


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a request needs besides what it asks for."""

    server: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    # A secret, too: its address may hold a password.
    proxy: Secret | None = None
    authorization: Secret | None = None
    lasts: timedelta = _REREAD

    def headers(self) -> dict[str, str]:
        return {} if self.authorization is None else {"Authorization": self.authorization.reveal()}

    def without_token(self, text: bytes) -> bytes:
        if self.authorization is None:
            return text
        token = self.authorization.reveal().rpartition(" ")[2].encode()
        return text.replace(token, MASK.encode()) if token else text


class Access:
    """Hands out the current way, one reader at a time."""

    def __init__(self, cluster: str, read: Callable[[], Awaitable[Way]], clock: Callable[[], float]) -> None:
        self._cluster, self._read, self._clock = cluster, read, clock
        self._way: Way | None = None
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def way(self) -> Way:
        if self._way is not None and self._clock() < self._until:
            return self._way
        async with self._lock:
            if self._way is not None and self._clock() < self._until:
                return self._way
            try:
                return await self._renew()
            except ClusterError as error:
                if self._way is None:
                    raise
                # What we have may well be good still; if not, the server's 401 says so.
                log.warning("credentials could not be read again", cluster=self._cluster, error=str(error))
                self._until = self._clock() + _REREAD_SOON.total_seconds()
                return self._way

    async def renewed(self, refused: Way) -> Way:
        """After a 401: a fresh reading, unless another request has already made one."""
        async with self._lock:
            if self._way is refused or self._way is None:
                return await self._renew()
            return self._way

    async def _renew(self) -> Way:
        try:
            way = await self._read()
        except OSError as error:
            raise Unavailable(
                f"cluster {self._cluster}: its credentials can't be read: {error.strerror} ({error.filename})"
            ) from None
        if self._way is not None and way.server != self._way.server:
            # A list begun on one cluster must never go on at another.
            raise Unavailable(
                f"cluster {self._cluster}: its kubeconfig names another server now ({way.server}, it was "
                f"{self._way.server}); restart if that is meant"
            )
        self._way = way
        self._until = self._clock() + way.lasts.total_seconds()
        return way


def access(name: str, settings: ClusterSettings, via: "Cluster | None", clock: Callable[[], float]) -> Access:
    """Which of the ways the settings ask for; nothing at all means what kubectl would do."""
    contexts = TlsContexts()
    if settings.secret is not None:
        if via is None:
            raise ValueError(f"cluster {name} is described in a Secret, but the cluster that holds it was not given")
        namespace, secret, key = settings.secret.split("/")

        async def from_secret() -> Way:
            text = await _secret(via, namespace, secret, key)
            where = f"Secret {settings.secret} of cluster {via.name}"
            return await _way(kubeconfig.parse(text, where, settings.context), contexts)

        return Access(name, from_secret, clock)
    paths = [settings.kubeconfig] if settings.kubeconfig else kubeconfig.default_paths()
    inside = settings.in_cluster or (
        settings.kubeconfig is None
        and "KUBERNETES_SERVICE_HOST" in os.environ
        and not any(path.is_file() for path in paths)
    )

    async def from_files() -> Way:
        return await _way(await asyncio.to_thread(kubeconfig.load, paths, settings.context), contexts)

    async def from_inside() -> Way:
        return await asyncio.to_thread(_inside, contexts)

    return Access(name, from_inside if inside else from_files, clock)


async def _way(entry: kubeconfig.Entry, contexts: TlsContexts) -> Way:
    issued = await plugins.ask(entry) if plugins.needed(entry.user) else None
    return await asyncio.to_thread(_assembled, entry, issued, contexts)


def _assembled(entry: kubeconfig.Entry, issued: plugins.Issued | None, contexts: TlsContexts) -> Way:
    server, user = entry.server, entry.user
    if issued is not None and issued.certificate:
        certificate, key = issued.certificate.encode(), issued.key.encode()
    else:
        certificate = _data_or_file(user.client_certificate_data, user.client_certificate)
        key = _data_or_file(user.client_key_data, user.client_key)
    authority = _data_or_file(server.certificate_authority_data, server.certificate_authority)
    secure = server.server.startswith("https://")
    return Way(
        server=server.server.rstrip("/"),
        tls=contexts.get(authority, certificate, key, verify=not server.insecure_skip_tls_verify) if secure else None,
        server_name=server.tls_server_name or None,
        proxy=_usable_proxy(server.proxy_url) if server.proxy_url else _proxy_of_environment(server.server),
        authorization=_authorization(user, issued),
        lasts=_REREAD if issued is None else issued.lasts,
    )


def _authorization(user: kubeconfig.User, issued: plugins.Issued | None) -> Secret | None:
    if issued is not None:
        return Secret(issued.authorization) if issued.authorization else None
    # A token file wins over a token, as with kubectl: it is the one that rotates.
    token = Path(user.token_file).read_text().strip() if user.token_file else user.token
    if token:
        return Secret(f"Bearer {token}")
    if user.username:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return Secret(f"Basic {pair}")
    return None


def _inside(contexts: TlsContexts) -> Way:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise Unavailable(
            "in_cluster is set, but KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not: this is no pod"
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    token = (SERVICE_ACCOUNT / "token").read_text().strip()
    authority = (SERVICE_ACCOUNT / "ca.crt").read_bytes()
    return Way(
        server=server,
        tls=contexts.get(authority, b"", b"", verify=True),
        proxy=_proxy_of_environment(server),
        authorization=Secret(f"Bearer {token}"),
    )


async def _secret(via: "Cluster", namespace: str, name: str, key: str) -> bytes:
    found = await via.get(SECRETS, namespace, name)
    where = f"Secret {namespace}/{name} of cluster {via.name}"
    if found is None:
        raise Unavailable(f"{where} is not there")
    text = text_of_secret(found.raw, key)
    if text is None:
        raise Unavailable(f"{where} has no key {key!r}")
    return text


def _data_or_file(data: str, file: str) -> bytes:
    if data:
        try:
            return base64.b64decode(data, validate=False)
        except (binascii.Error, ValueError):
            raise Unavailable("a certificate or key in the kubeconfig is not base64") from None
    return Path(file).read_bytes() if file else b""


def _usable_proxy(address: str) -> Secret:
    if urlsplit(address).scheme not in ("http", "https"):
        raise Unavailable("the kubeconfig's proxy-url is neither http:// nor https://; other proxies are not supported")
    return Secret(address)


def _proxy_of_environment(server: str) -> Secret | None:
    parts = urlsplit(server)
    # As with kubectl, a server on this machine is never reached through a proxy.
    if parts.hostname is None or parts.hostname in ("localhost", "::1") or parts.hostname.startswith("127."):
        return None
    address = None if proxy_bypass(parts.hostname) else getproxies().get(parts.scheme)
    return Secret(address) if address else None
