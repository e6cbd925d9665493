"""HTTP session of the AWS clients: the SDK's own, with a limit on response bodies and protection against early
responses."""

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
from workers.handlers.response_size import read_bounded

# The SDK's parser accepts UTF-8 and UTF-16, with and without a byte order mark.
_MARKUP: Final = re.compile(rb"[\xef\xbb\xbf\xfe\xff\0\s]*<")
_DOCTYPES: Final = (b"<!DOCTYPE", b"\0".join(bytes([one]) for one in b"<!DOCTYPE"))


class BoundedSession(AIOHTTPSession):  # type: ignore[misc]  # the SDK carries no types
    """Passed to clients as `http_session_cls`. The SDK itself requests unencoded bodies."""

    async def _create_connector(self, proxy_url: str | None) -> aiohttp.BaseConnector:
        # The SDK has no public way to replace its connector.
        made: aiohttp.BaseConnector = await super()._create_connector(proxy_url)
        return close_on_early_data(made)

    async def send(self, request: Any) -> AioAWSResponse:
        # Else the SDK reads the whole body. No operation used here streams its body.
        request.stream_output = True
        response = await super().send(request)
        try:
            body = await read_bounded(response.raw)
        except TimeoutError as error:
            raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except aiohttp.ClientError as error:
            raise ConnectionClosedError(endpoint_url=request.url, error=error, request=request) from error
        if _MARKUP.match(body) and any(one in body for one in _DOCTYPES):
            # AWS sends none. The entities and default attributes that it declares could expand a response more than a
            # hundredfold in the SDK's parser.
            raise ResponseParserError("markup with a document type")
        return AioAWSResponse(response.url, response.status_code, response.headers, _Body(body))


class BoundedMetadataSession:
    """Passed to the SDK's fetcher of container credentials, which opens a session per request. The fetcher of instance
    metadata can't be replaced: the SDK creates it inside the default chain, and reads its responses without a limit."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[BoundedSession]:
        async with BoundedSession(timeout=self._timeout) as session:
            yield session


class _Body:
    """The body that the SDK's response object reads."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self) -> bytes:
        return self._body
