"""HTTP transport of the Azure clients: the SDK's own, on a session whose bodies are read up to a limit.
The session asks for unencoded bodies, because the SDK unpacks others at once and whole."""

import aiohttp
from azure.core.pipeline.transport import AioHttpTransport

from service.http_client import IDENTITY, close_on_early_data
from workers.handlers.answer_size import read_bounded


class _BoundedResponse(aiohttp.ClientResponse):
    """The SDK reads every body by `read`."""

    _whole: bytes | None = None

    async def read(self) -> bytes:
        if self._whole is None:
            self._whole = await read_bounded(self)
        return self._whole


def bounded_session() -> aiohttp.ClientSession:
    """As the SDK makes its own, but for the bound, the encoding and early answers."""
    return aiohttp.ClientSession(
        connector=close_on_early_data(aiohttp.TCPConnector()),
        trust_env=True,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"Accept-Encoding": IDENTITY},
        response_class=_BoundedResponse,
    )


def client_transport() -> AioHttpTransport:
    """For one client, which closes it."""
    return AioHttpTransport(session=bounded_session())


def shared_transport(session: aiohttp.ClientSession) -> AioHttpTransport:
    """For several users, none of whom closes the session."""
    return AioHttpTransport(session=session, session_owner=False)
