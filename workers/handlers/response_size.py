"""Size limit for HTTP responses of cloud providers; compressed bodies are refused.
A small compressed body, or an endless one, could fill the memory of a worker."""

from typing import TYPE_CHECKING, Final, Literal

from service.http_client import body_codings

if TYPE_CHECKING:
    # Comes with the SDKs; modules that only need the exception do not import it.
    import aiohttp

MEBIBYTE: Final = 1024 * 1024
LARGEST: Final = 16 * MEBIBYTE
"""Bytes; the SDKs' parsers need up to 25 times as much memory. Real responses are smaller: Resource Graph ends at 16
MiB, 1,000 network interfaces of EC2 take 5."""


class UnreadableResponse(Exception):
    """The body was not read; `code` says why."""

    def __init__(self, code: Literal["AnswerTooLarge", "AnswerEncoded"], message: str) -> None:
        super().__init__(message)
        self.code = code


async def read_bounded(response: "aiohttp.ClientResponse", limit: int = LARGEST) -> bytes:
    """The whole body. Raises UnreadableResponse and aiohttp's errors, and then closes the connection."""
    try:
        _refuse_encoded(response)
        if (response.content_length or 0) > limit:
            raise _too_large(response, limit)
        parts, size = list[bytes](), 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > limit:
                raise _too_large(response, limit)
            parts.append(part)
    except BaseException:
        response.close()
        raise
    return b"".join(parts)


def _refuse_encoded(response: "aiohttp.ClientResponse") -> None:
    if encodings := body_codings(response.headers):
        raise UnreadableResponse(
            "AnswerEncoded",
            f"the answer (status {response.status}) is encoded ({', '.join(encodings)[:40]}) although the request "
            "forbids it; look at proxies on the way",
        )


def _too_large(response: "aiohttp.ClientResponse", limit: int) -> UnreadableResponse:
    return UnreadableResponse(
        "AnswerTooLarge",
        f"the answer (status {response.status}) is larger than {limit / MEBIBYTE:g} MiB; look at proxies on the way",
    )
