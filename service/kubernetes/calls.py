"""Calls and streams to one API server with the current credentials, and what their answers mean.
A 401 leads to one fresh reading of the credentials; every call but a stream has a time limit."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from datetime import timedelta
from typing import Final, TypeVar

from service.kubernetes.access import Access
from service.kubernetes.answers import no_answer, problem
from service.kubernetes.errors import Invalid
from service.kubernetes.exchange import LARGEST_ANSWER, Request, Stream
from service.kubernetes.slots import Slots

CALL_TIMEOUT: Final = timedelta(seconds=30)
_Result = TypeVar("_Result")


class Calls:
    def __init__(self, cluster: str, access: Access) -> None:
        # Only here, for it imports kubernetes_asyncio, which takes 44 MiB and a third of a second.
        from service.kubernetes.transport import Transport

        self._cluster, self._access = cluster, access
        self._transport = Transport()
        self._slots = Slots()

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
        largest: int = LARGEST_ANSWER,
    ) -> bytes:
        """`body` is what the json module can encode. An answer of more bytes than `largest` is Unreadable."""
        headers = {"Accept": accept, "Content-Type": content_type}
        request = Request(method, path, query, headers, body, timeout.total_seconds(), largest)
        if urgent:
            return await self._called(request)
        # Its time begins when its turn has come.
        async with self._slots.of(path):
            return await self._called(request)

    async def _called(self, request: Request) -> bytes:
        self._check(request)
        way = await self._access.way()
        answer = await self._answered(request, self._transport.call(way, request))
        if answer.status == 401:
            # A 401 means that nothing was done, so the request may be repeated whatever its method.
            way = await self._access.renewed(way)
            answer = await self._answered(request, self._transport.call(way, request))
        if answer.status < 300:
            return answer.body
        # Some servers and proxies repeat what they were sent.
        raise problem(
            answer.status, answer.headers, way.without_token(answer.body), self.asked(request.method, request.path)
        )  # fmt: skip

    @contextlib.asynccontextmanager
    async def stream(self, path: str, query: Mapping[str, str], accept: str, first: timedelta) -> AsyncIterator[Stream]:
        """An answer that is read piece by piece; only its beginning has a time limit. Its connection is closed at the
        end and never used again."""
        request = Request("GET", path, query, {"Accept": accept}, None, first.total_seconds())
        self._check(request)
        way = await self._access.way()
        stream = await self._answered(request, self._transport.stream(way, request))
        if stream.status == 401:
            stream.abort()
            way = await self._access.renewed(way)
            stream = await self._answered(request, self._transport.stream(way, request))
        try:
            if stream.status >= 300:
                body = way.without_token(await stream.refusal())
                raise problem(stream.status, stream.headers, body, self.asked("GET", path))
            yield stream
        finally:
            stream.abort()

    def asked(self, method: str, path: str) -> str:
        return f"cluster {self._cluster}: {method} {path}"

    async def _answered(self, request: Request, answer: Awaitable[_Result]) -> _Result:
        """Failures are raised outside the handler: from inside they would carry the request along, and the request
        carries the token."""
        try:
            return await answer
        except (OSError, ValueError) as error:
            failure = no_answer(error, self.asked(request.method, request.path))
        raise failure

    def _check(self, request: Request) -> None:
        """A path that could be read as another one, or as more than a path, is not sent."""
        path = request.path
        relative = "/." in path and {".", ".."} & set(path.split("/"))
        if relative or not path.isascii() or not path.isprintable() or " " in path:
            raise Invalid(f"{self.asked(request.method, ascii(path))}: not a path of an API server")
