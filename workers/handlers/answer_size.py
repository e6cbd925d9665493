"""Bounded reading of HTTP answers of cloud providers: up to a fixed size, and never unpacked.
A few bytes of a compressed body, or one without an end, would fill the memory of a worker."""

from typing import TYPE_CHECKING, Final, Literal

from service.http_client import body_codings

if TYPE_CHECKING:
    # The SDKs bring it; those who only want the exception need not import it.
    import aiohttp

MEBIBYTE: Final = 1024 * 1024
LARGEST: Final = 16 * MEBIBYTE
"""Bytes, of which the SDKs' parsers make up to 25 times as many in memory. More than real answers have: Resource Graph
ends at 16 MiB, 1,000 network interfaces of EC2 take 5."""


class UnreadableAnswer(Exception):
    """The body was not read, so nothing follows from it; `code` names why."""

    def __init__(self, code: Literal["AnswerTooLarge", "AnswerEncoded"], message: str) -> None:
        super().__init__(message)
        self.code = code


async def read_bounded(response: "aiohttp.ClientResponse", limit: int = LARGEST) -> bytes:
    """The whole body. Raises UnreadableAnswer, and what aiohttp raises; the connection is given up then."""
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
        raise UnreadableAnswer(
            "AnswerEncoded",
            f"the answer (status {response.status}) is encoded ({', '.join(encodings)[:40]}) although the request "
            "forbids it; look at proxies on the way",
        )


def _too_large(response: "aiohttp.ClientResponse", limit: int) -> UnreadableAnswer:
    return UnreadableAnswer(
        "AnswerTooLarge",
        f"the answer (status {response.status}) is larger than {limit / MEBIBYTE:g} MiB; look at proxies on the way",
    )
