"""Azure SDK clients for tests of the stand-in, over plain HTTP and as any principal.
They neither wait nor retry: a test sees each response."""

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.mgmt.compute.aio import ComputeManagementClient
from azure.mgmt.network.aio import NetworkManagementClient
from azure.mgmt.resourcegraph.aio import ResourceGraphClient
from azure.mgmt.resourcegraph.models import QueryRequest, QueryRequestOptions

from standins.azure import GROUP, SUBSCRIPTION, LocalAzure


class Principal:
    """A credential whose token is its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(self.name, int(time.time()) + 3600)

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...


class _PlainHttpPolicy(SansIOHTTPPolicy[Any, Any]):
    """A token may go over plain HTTP."""

    def on_request(self, request: Any) -> None:
        request.context.options["enforce_https"] = False


class ArmClients:
    """One principal's clients in one subscription. `headers` are of the last answer that came through `kept`."""

    def __init__(self, azure: LocalAzure, network: Any, compute: Any, graph: Any) -> None:
        self.azure, self.network, self.compute, self.graph = azure, network, compute, graph
        self.headers: dict[str, str] = {}

    def keep(self, response: Any) -> None:
        self.headers = {name.lower(): value for name, value in response.http_response.headers.items()}

    async def delete(self, name: str, *, group: str = GROUP) -> int:
        """Deletes an interface without following it up; the status of the answer."""
        return await self.delete_with(self.network.network_interfaces, name, group=group)

    async def delete_vm(self, name: str, *, group: str = GROUP) -> int:
        return await self.delete_with(self.compute.virtual_machines, name, group=group)

    async def delete_disk(self, name: str, *, group: str = GROUP) -> int:
        return await self.delete_with(self.compute.disks, name, group=group)

    async def delete_ip(self, name: str, *, group: str = GROUP) -> int:
        return await self.delete_with(self.network.public_ip_addresses, name, group=group)

    async def get(self, name: str, *, group: str = GROUP) -> Any:
        return await self.network.network_interfaces.get(group, name, raw_response_hook=self.keep)

    async def query(self, text: str, *subscriptions: str, **options: Any) -> Any:
        asked = QueryRequest(
            query=text, subscriptions=list(subscriptions) or None, options=QueryRequestOptions(**options)
        )
        return await self.graph.resources(asked, raw_response_hook=self.keep)

    async def delete_with(self, methods: Any, name: str, *, group: str = GROUP) -> int:
        """Deletes a resource with the SDK's methods for its kind, without following it up; the status of the answer."""
        seen: list[int] = []

        def hook(response: Any) -> None:
            seen.append(response.http_response.status_code)
            self.keep(response)

        await methods.begin_delete(group, name, polling=False, raw_response_hook=hook)
        return seen[0]


@contextlib.asynccontextmanager
async def arm_on(
    azure: LocalAzure, *, principal: str = "tester", subscription: str = SUBSCRIPTION, credential: Any = None
) -> AsyncIterator[ArmClients]:
    said: dict[str, Any] = {
        "base_url": azure.address,
        "credential_scopes": ["https://management.azure.com/.default"],
        "per_call_policies": [_PlainHttpPolicy()],
        "retry_total": 0,
    }
    who = credential or Principal(principal)
    async with (
        NetworkManagementClient(who, subscription, **said) as network,
        ComputeManagementClient(who, subscription, **said) as compute,
        ResourceGraphClient(who, **said) as graph,
    ):
        yield ArmClients(azure, network, compute, graph)


def said(caught: list[HttpResponseError], header: str) -> str | None:
    """A header of the refusal."""
    response: Any = caught[0].response
    found = response.headers.get(header)
    return None if found is None else str(found)


@contextlib.contextmanager
def refusal(code: str, status: int) -> Iterator[list[HttpResponseError]]:
    """What is done inside is refused by Azure with this code; the error is in the list afterwards."""
    caught: list[HttpResponseError] = []
    with pytest.raises(HttpResponseError) as raised:
        yield caught
    caught.append(raised.value)
    found = raised.value.error
    assert found is not None, raised.value
    assert (found.code, raised.value.status_code) == (code, status)
