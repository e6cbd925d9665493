"""Calls and streams to one API server with the current credentials. After a 401 the credentials are read again once;
every call has a time limit, a stream only until its first byte."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from datetime import timedelta
from typing import Final, TypeVar

from service.kubernetes.concurrency import CallLimits
from service.kubernetes.endpoint import EndpointCache
from service.kubernetes.errors import Invalid
from service.kubernetes.http_messages import LARGEST_RESPONSE, ApiRequest, ResponseStream
from service.kubernetes.responses import connection_error, response_error

CALL_TIMEOUT: Final = timedelta(seconds=30)
_Result = TypeVar("_Result")


class ApiCalls:
    def __init__(self, cluster: str, endpoints: EndpointCache) -> None:
        # Imported only here: kubernetes_asyncio takes 44 MiB and a third of a second.
        from service.kubernetes.transport import Transport

        self._cluster, self._endpoints = cluster, endpoints
        self._transport = Transport()
        self._limits = CallLimits()

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: timedelta = CALL_TIMEOUT,
        urgent: bool = False,
        largest: int = LARGEST_RESPONSE,
    ) -> bytes:
        """`body` is what the json module can encode. A response of more bytes than `largest` is Unreadable."""
        headers = {"Accept": accept, "Content-Type": content_type}
        request = ApiRequest(method, path, query, headers, body, timeout.total_seconds(), largest)
        if urgent:
            return await self._call(request)
        # Its time limit starts when it has a slot.
        async with self._limits.slot(path):
            return await self._call(request)

    async def _call(self, request: ApiRequest) -> bytes:
        self._check(request)
        endpoint = await self._endpoints.current()
        response = await self._await_response(request, self._transport.call(endpoint, request))
        if response.status == 401:
            # A 401 means that nothing was done, so a request of any method may be repeated.
            endpoint = await self._endpoints.refreshed(endpoint)
            response = await self._await_response(request, self._transport.call(endpoint, request))
        if response.status < 300:
            return response.body
        # Some servers and proxies repeat the request, with the token.
        body = endpoint.mask_token(response.body)
        raise response_error(response.status, response.headers, body, self.describe(request.method, request.path))

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], accept: str, first: timedelta
    ) -> AsyncIterator[ResponseStream]:
        """A response that is read piece by piece; only its beginning has a time limit. Its connection is closed at the
        end and never reused."""
        request = ApiRequest("GET", path, query, {"Accept": accept}, None, first.total_seconds())
        self._check(request)
        endpoint = await self._endpoints.current()
        stream = await self._await_response(request, self._transport.stream(endpoint, request))
        if stream.status == 401:
            stream.abort()
            endpoint = await self._endpoints.refreshed(endpoint)
            stream = await self._await_response(request, self._transport.stream(endpoint, request))
        try:
            if stream.status >= 300:
                body = endpoint.mask_token(await stream.error_body())
                raise response_error(stream.status, stream.headers, body, self.describe("GET", path))
            yield stream
        finally:
            stream.abort()

    def describe(self, method: str, path: str) -> str:
        return f"cluster {self._cluster}: {method} {path}"

    async def _await_response(self, request: ApiRequest, response: Awaitable[_Result]) -> _Result:
        """Errors are raised outside the `except`: inside they would have the request, with the token, as their
        context."""
        try:
            return await response
        except (OSError, ValueError) as error:
            failure = connection_error(error, self.describe(request.method, request.path))
        raise failure

    def _check(self, request: ApiRequest) -> None:
        """Refuses a path that could be read as another one, or as more than a path."""
        path = request.path
        relative = "/." in path and {".", ".."} & set(path.split("/"))
        if relative or not path.isascii() or not path.isprintable() or " " in path:
            raise Invalid(f"{self.describe(request.method, ascii(path))}: not a path of an API server")
