"""HTTP session of the AWS clients: the SDK's own, but for bodies, which are read up to a limit, and early answers."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError
from botocore.parsers import ResponseParserError

from service.http_client import close_on_early_data
from workers.handlers.answer_size import read_bounded

# The SDK's parser takes UTF-8 and UTF-16, with a byte order mark and without.
_MARKUP: Final = re.compile(rb"[\xef\xbb\xbf\xfe\xff\0\s]*<")
_DOCTYPES: Final = (b"<!DOCTYPE", b"\0".join(bytes([one]) for one in b"<!DOCTYPE"))


class BoundedSession(AIOHTTPSession):  # type: ignore[misc]  # the SDK carries no types
    """Given to clients as `http_session_cls`. The SDK asks for unencoded bodies by itself."""

    async def _create_connector(self, proxy_url: str | None) -> aiohttp.BaseConnector:
        # The SDK has no public way to choose or change its connector.
        made: aiohttp.BaseConnector = await super()._create_connector(proxy_url)
        return close_on_early_data(made)

    async def send(self, request: Any) -> AioAWSResponse:
        # Else the parent reads all there is. No operation that is used here has a body that is streamed.
        request.stream_output = True
        response = await super().send(request)
        try:
            body = await read_bounded(response.raw)
        except TimeoutError as error:
            raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except aiohttp.ClientError as error:
            raise ConnectionClosedError(endpoint_url=request.url, error=error, request=request) from error
        if _MARKUP.match(body) and any(one in body for one in _DOCTYPES):
            # AWS sends none. By the entities and default attributes that one declares an answer grows a hundredfold,
            # and more, in the SDK's parser.
            raise ResponseParserError("markup with a document type")
        return AioAWSResponse(response.url, response.status_code, response.headers, _Body(body))


class BoundedMetadataSession:
    """Given to the SDK's fetcher of credentials of a container, which opens a session for each request.
    The fetcher for the metadata of a machine can't be given one: the SDK makes it, with settings of its own, inside the
    default chain. What the machine answers there is read without a limit."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[BoundedSession]:
        async with BoundedSession(timeout=self._timeout) as session:
            yield session


class _Body:
    """What the SDK's response reads from."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self) -> bytes:
        return self._body
