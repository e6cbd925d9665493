"""SDK clients, one of each kind per subscription and identity, with their credentials and HTTP transport. The SDK's
retries are off, because waits belong in Redis. Response bodies are read up to a limit and unencoded, because the SDK
would decompress them without one."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from azure.core.pipeline import PipelineRequest
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.core.pipeline.transport import AioHttpTransport
from azure.identity.aio import DefaultAzureCredential
from azure.mgmt.compute.aio import ComputeManagementClient
from azure.mgmt.network.aio import NetworkManagementClient
from azure.mgmt.resourcegraph.aio import ResourceGraphClient

from service.http_client import IDENTITY, close_on_early_data
from workers.handlers.response_size import read_bounded
from workers.providers.azure.model import AzureScope

CONNECT: Final = 10
READ: Final = 20
"""Timeouts in seconds."""


class _Plain(SansIOHTTPPolicy[Any, Any]):
    """Allows a token over plain HTTP, for a local stand-in; used only if the endpoint's address begins with http."""

    def on_request(self, request: PipelineRequest[Any]) -> None:
        request.context.options["enforce_https"] = False


class AzureClients:
    """Async context manager. `endpoint` is the address of Resource Manager, and also the scope of its tokens."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._open = AsyncExitStack()
        self._clients: dict[tuple[str, str, str], Any] = {}
        self._credentials: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    def network(self, where: AzureScope) -> Any:
        return self._client("network", where, partial(NetworkManagementClient, subscription_id=where.subscription))

    def compute(self, where: AzureScope) -> Any:
        return self._client("compute", where, partial(ComputeManagementClient, subscription_id=where.subscription))

    def graph(self, where: AzureScope) -> Any:
        return self._client("graph", where, ResourceGraphClient)

    def _client(self, which: str, where: AzureScope, make: Callable[..., Any]) -> Any:
        key = which, "" if which == "graph" else where.subscription, where.client_id
        found = self._clients.get(key)
        if found is None:
            plain = [_Plain()] if self._endpoint.startswith("http://") else []
            found = make(
                credential=self._credential(where.client_id), base_url=self._endpoint,
                credential_scopes=[f"{self._endpoint}/.default"], per_call_policies=plain, retry_total=0,
                connection_timeout=CONNECT, read_timeout=READ, user_agent="knell", transport=client_transport(),
            )  # fmt: skip
            self._clients[key] = found
            self._open.push_async_exit(found)
        return found

    def _credential(self, client_id: str) -> Any:
        """Workload identity, managed identity or environment, unless settings choose one; never a developer's own
        login."""
        found = self._credentials.get(client_id)
        if found is None:
            words = {"managed_identity_client_id": client_id, "workload_identity_client_id": client_id}
            # Closed after the credential, whose chain shares it.
            session = bounded_session()
            self._open.push_async_exit(session)
            found = self._credentials[client_id] = DefaultAzureCredential(
                exclude_cli_credential=True, exclude_developer_cli_credential=True, exclude_powershell_credential=True,
                exclude_shared_token_cache_credential=True, exclude_visual_studio_code_credential=True,
                exclude_interactive_browser_credential=True, exclude_environment_credential=bool(client_id),
                transport=shared_transport(session),
                **(words if client_id else {}),
            )  # fmt: skip
            self._open.push_async_exit(found)
        return found


class _BoundedResponse(aiohttp.ClientResponse):
    """Limits `read`, by which the SDK reads every body."""

    _whole: bytes | None = None

    async def read(self) -> bytes:
        if self._whole is None:
            self._whole = await read_bounded(self)
        return self._whole


def bounded_session() -> aiohttp.ClientSession:
    """Like the SDK's own session, but with a size limit, without encodings, and safe against early responses."""
    return aiohttp.ClientSession(
        connector=close_on_early_data(aiohttp.TCPConnector()),
        trust_env=True,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"Accept-Encoding": IDENTITY},
        response_class=_BoundedResponse,
    )


def client_transport() -> AioHttpTransport:
    """Transport of one client, which closes it."""
    return AioHttpTransport(session=bounded_session())


def shared_transport(session: aiohttp.ClientSession) -> AioHttpTransport:
    """Transport that does not close the shared session."""
    return AioHttpTransport(session=session, session_owner=False)
