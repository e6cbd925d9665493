"""The SDK's clients, one of each per subscription and identity, and how they get their tokens.
Their own retries are off: who waits in the SDK waits in a process, and forgets that he does."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from azure.core.pipeline import PipelineRequest
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.identity.aio import DefaultAzureCredential
from azure.mgmt.compute.aio import ComputeManagementClient
from azure.mgmt.network.aio import NetworkManagementClient
from azure.mgmt.resourcegraph.aio import ResourceGraphClient

from workers.handlers.azure.model import Where
from workers.handlers.azure.transport import bounded_session, client_transport, shared_transport

CONNECT: Final = 10
READ: Final = 20
"""Seconds until a call is given up."""


class _Plain(SansIOHTTPPolicy[Any, Any]):
    """Lets a token go over plain HTTP: for a stand-in on this machine, and only where its address says http."""

    def on_request(self, request: PipelineRequest[Any]) -> None:
        request.context.options["enforce_https"] = False


class Clients:
    """An async context. `endpoint` is the address of Resource Manager; the scope of its tokens is its own."""

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

    def network(self, where: Where) -> Any:
        return self._client("network", where, partial(NetworkManagementClient, subscription_id=where.subscription))

    def compute(self, where: Where) -> Any:
        return self._client("compute", where, partial(ComputeManagementClient, subscription_id=where.subscription))

    def graph(self, where: Where) -> Any:
        return self._client("graph", where, ResourceGraphClient)

    def _client(self, which: str, where: Where, make: Callable[..., Any]) -> Any:
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
        """Workload identity, managed identity, or what the environment names, unless settings choose one; nothing of a
        developer's own machine."""
        found = self._credentials.get(client_id)
        if found is None:
            words = {"managed_identity_client_id": client_id, "workload_identity_client_id": client_id}
            # Closed after the credential: those of its chain share it.
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
