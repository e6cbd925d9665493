"""Endpoint of a cluster: address, TLS, proxy and Authorization header, cached and read again as they age. Tokens rotate
under a running process, so none is cached longer than a minute or than its own lifetime."""

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

from service.kubernetes import credential_plugins, kubeconfig
from service.kubernetes.decoding import secret_value
from service.kubernetes.errors import ClusterError, Unavailable
from service.kubernetes.objects import SECRETS
from service.kubernetes.tls import TlsContexts
from service.masking import MASK
from service.settings import ClusterSettings
from service.settings.redis import Secret

if TYPE_CHECKING:
    from service.kubernetes.client import KubernetesClient

log = structlog.get_logger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CACHED_FOR: Final = timedelta(minutes=1)
# After a failed read the old credentials are used on, and read again soon.
_RETRY_READ: Final = timedelta(seconds=5)


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a request needs besides its own content."""

    server: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    # A secret, too: the address may contain a password.
    proxy: Secret | None = None
    authorization: Secret | None = None
    lifetime: timedelta = _CACHED_FOR

    def headers(self) -> dict[str, str]:
        return {} if self.authorization is None else {"Authorization": self.authorization.reveal()}

    def mask_token(self, text: bytes) -> bytes:
        if self.authorization is None:
            return text
        token = self.authorization.reveal().rpartition(" ")[2].encode()
        return text.replace(token, MASK.encode()) if token else text


class EndpointCache:
    """The current endpoint. Concurrent callers share one read."""

    def __init__(self, cluster: str, read: Callable[[], Awaitable[Endpoint]], clock: Callable[[], float]) -> None:
        self._cluster, self._read, self._clock = cluster, read, clock
        self._endpoint: Endpoint | None = None
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def current(self) -> Endpoint:
        if self._endpoint is not None and self._clock() < self._until:
            return self._endpoint
        async with self._lock:
            if self._endpoint is not None and self._clock() < self._until:
                return self._endpoint
            try:
                return await self._renew()
            except ClusterError as error:
                if self._endpoint is None:
                    raise
                # The old credentials may still be valid; if not, the server answers with 401.
                log.warning("credentials could not be read again", cluster=self._cluster, error=str(error))
                self._until = self._clock() + _RETRY_READ.total_seconds()
                return self._endpoint

    async def refreshed(self, refused: Endpoint) -> Endpoint:
        """After a 401: reads it again, unless another request has already done so."""
        async with self._lock:
            if self._endpoint is refused or self._endpoint is None:
                return await self._renew()
            return self._endpoint

    async def _renew(self) -> Endpoint:
        try:
            endpoint = await self._read()
        except OSError as error:
            raise Unavailable(
                f"cluster {self._cluster}: its credentials can't be read: {error.strerror} ({error.filename})"
            ) from None
        if self._endpoint is not None and endpoint.server != self._endpoint.server:
            # A list must never continue on another cluster.
            raise Unavailable(
                f"cluster {self._cluster}: its kubeconfig names another server now ({endpoint.server}, it was "
                f"{self._endpoint.server}); restart if that is meant"
            )
        self._endpoint = endpoint
        self._until = self._clock() + endpoint.lifetime.total_seconds()
        return endpoint


def endpoint_cache(
    name: str, settings: ClusterSettings, via: "KubernetesClient | None", clock: Callable[[], float]
) -> EndpointCache:
    """From a Secret, from files or from the service account, as the settings say; without any, as kubectl would do."""
    contexts = TlsContexts()
    if settings.secret is not None:
        if via is None:
            raise ValueError(f"cluster {name} is described in a Secret, but the cluster that holds it was not given")
        namespace, secret, key = settings.secret.split("/")

        async def from_secret() -> Endpoint:
            text = await _read_secret(via, namespace, secret, key)
            where = f"Secret {settings.secret} of cluster {via.name}"
            return await _endpoint_of(kubeconfig.parse(text, where, settings.context), contexts)

        return EndpointCache(name, from_secret, clock)
    paths = [settings.kubeconfig] if settings.kubeconfig else kubeconfig.default_paths()
    inside = settings.in_cluster or (
        settings.kubeconfig is None
        and "KUBERNETES_SERVICE_HOST" in os.environ
        and not any(path.is_file() for path in paths)
    )

    async def from_files() -> Endpoint:
        return await _endpoint_of(await asyncio.to_thread(kubeconfig.load, paths, settings.context), contexts)

    async def from_service_account() -> Endpoint:
        return await asyncio.to_thread(_in_cluster, contexts)

    return EndpointCache(name, from_service_account if inside else from_files, clock)


async def _endpoint_of(entry: kubeconfig.KubeconfigContext, contexts: TlsContexts) -> Endpoint:
    issued = await credential_plugins.issue_credential(entry) if credential_plugins.needs_plugin(entry.user) else None
    return await asyncio.to_thread(_assemble, entry, issued, contexts)


def _assemble(
    entry: kubeconfig.KubeconfigContext, issued: credential_plugins.IssuedCredential | None, contexts: TlsContexts
) -> Endpoint:
    server, user = entry.server, entry.user
    if issued is not None and issued.certificate:
        certificate, key = issued.certificate.encode(), issued.key.encode()
    else:
        certificate = _data_or_file(user.client_certificate_data, user.client_certificate)
        key = _data_or_file(user.client_key_data, user.client_key)
    authority = _data_or_file(server.certificate_authority_data, server.certificate_authority)
    secure = server.server.startswith("https://")
    return Endpoint(
        server=server.server.rstrip("/"),
        tls=contexts.get(authority, certificate, key, verify=not server.insecure_skip_tls_verify) if secure else None,
        server_name=server.tls_server_name or None,
        proxy=_usable_proxy(server.proxy_url) if server.proxy_url else _proxy_of_environment(server.server),
        authorization=_authorization(user, issued),
        lifetime=_CACHED_FOR if issued is None else issued.lifetime,
    )


def _authorization(
    user: kubeconfig.KubeconfigUser, issued: credential_plugins.IssuedCredential | None
) -> Secret | None:
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


def _in_cluster(contexts: TlsContexts) -> Endpoint:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise Unavailable(
            "in_cluster is set, but KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not: this is no pod"
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    token = (SERVICE_ACCOUNT / "token").read_text().strip()
    authority = (SERVICE_ACCOUNT / "ca.crt").read_bytes()
    return Endpoint(
        server=server,
        tls=contexts.get(authority, b"", b"", verify=True),
        proxy=_proxy_of_environment(server),
        authorization=Secret(f"Bearer {token}"),
    )


async def _read_secret(via: "KubernetesClient", namespace: str, name: str, key: str) -> bytes:
    found = await via.get(SECRETS, namespace, name)
    where = f"Secret {namespace}/{name} of cluster {via.name}"
    if found is None:
        raise Unavailable(f"{where} is not there")
    text = secret_value(found.raw, key)
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
