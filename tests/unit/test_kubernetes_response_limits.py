"""Responses that are too large for memory, or about another object than the requested one."""

import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import timedelta
from functools import cache

import msgspec
import pytest

from service.kubernetes import CONFIGMAPS, CRDS, LEASES, NAMESPACES, KubernetesClient, Lease, Unavailable, Unreadable
from service.kubernetes.http_messages import LARGEST_PAGE, LARGEST_RESPONSE
from tests.canned_calls import CHUNKED, DEADLINE, OK, WHOLE, address_of, calls_to, canned_calls

BLOCK = b" " * 0x10000
CHUNK = b"10000\r\n" + BLOCK + b"\r\n"


class FloodingServer:
    """A server that sends a block without end after the beginning of its answer; without a block, nothing more."""

    def __init__(self, head: bytes, block: bytes) -> None:
        self._head, self._block = head, block
        self.sent = 0
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self._head)
            while self._block and not writer.is_closing():
                writer.write(self._block)
                self.sent += len(self._block)
                await writer.drain()
            await reader.read()
        self.left.set()
        writer.close()


@asynccontextmanager
async def flooded(head: bytes, block: bytes) -> AsyncIterator[tuple[FloodingServer, KubernetesClient]]:
    flood = FloodingServer(head, block)
    async with (
        asyncio.timeout(DEADLINE * 2),
        await asyncio.start_server(flood.serve, "127.0.0.1", 0) as server,
        KubernetesClient("odd", calls_to(address_of(server.sockets[0].getsockname()[1]))) as cluster,
    ):
        yield flood, cluster


async def _object(cluster: KubernetesClient) -> None:
    await cluster.get(CONFIGMAPS, "ns", "one")


async def _change(cluster: KubernetesClient) -> None:
    await cluster.patch(CONFIGMAPS, "ns", "one", {})


async def _page(cluster: KubernetesClient) -> None:
    [page async for page in cluster.pages(CONFIGMAPS, "ns")]


async def _discovery(cluster: KubernetesClient) -> None:
    await cluster.discover("things.knell.test")


async def _line(cluster: KubernetesClient) -> None:
    async with aclosing(cluster.watch(CONFIGMAPS, "ns", "", "5", silence=timedelta(seconds=20))) as watch:
        [change async for change in watch]


Reader = Callable[[KubernetesClient], Awaitable[None]]


@pytest.mark.parametrize(("head", "block"), [(CHUNKED, CHUNK), (OK + b"\r\n", BLOCK)], ids=["chunked", "until closed"])
@pytest.mark.parametrize(
    ("read", "largest"),
    [
        (_object, LARGEST_RESPONSE),
        (_change, LARGEST_RESPONSE),
        (_discovery, LARGEST_RESPONSE),
        (_page, LARGEST_PAGE),
        (_line, LARGEST_PAGE),
    ],
)
async def test_an_answer_without_an_end_is_unreadable_at_its_limit_and_its_connection_closed(
    read: Reader, largest: int, head: bytes, block: bytes
) -> None:
    async with flooded(head, block) as (flood, cluster):
        tracemalloc.start()
        try:
            with pytest.raises(Unreadable, match=f"more than {largest:,} bytes|more than {largest} bytes"):
                await read(cluster)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        await flood.left.wait()
    assert peak < largest + 8 * 1024 * 1024


@pytest.mark.parametrize(("read", "largest"), [(_object, LARGEST_RESPONSE), (_page, LARGEST_PAGE)])
async def test_an_answer_that_announces_more_than_its_limit_is_not_read_at_all(read: Reader, largest: int) -> None:
    async with flooded(OK + b"Content-Length: %d\r\n\r\n" % (largest + 1), BLOCK) as (flood, cluster):
        with pytest.raises(Unreadable, match=f"more than {largest:,} bytes"):
            await read(cluster)
        await flood.left.wait()
        assert flood.sent < largest


async def test_an_answer_of_just_its_limit_is_read() -> None:
    async with canned_calls([[OK + b"Content-Length: 1000\r\n\r\n" + bytes(1000)]]) as (_, calls):
        assert len(await calls.call("GET", "/x", largest=1000)) == 1000


@pytest.mark.parametrize("head", [b"", b"Content-Length: 1000000000000\r\n"])
@pytest.mark.parametrize("read", [_object, _page, _line])
async def test_the_body_of_an_error_is_read_up_to_a_limit(read: Reader, head: bytes) -> None:
    async with flooded(b"HTTP/1.1 500 No\r\n" + head + b"\r\n", b"it is broken " * 1000) as (flood, cluster):
        with pytest.raises(Unavailable, match="it is broken"):
            await read(cluster)
        await flood.left.wait()


@cache
def _bomb() -> bytes:
    return gzip.compress(bytes(64 * 1024 * 1024))


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Encoding: gzip",
        b"Content-Encoding: identity\r\nContent-Encoding: br",
        b"Transfer-Encoding: gzip",
    ],
)
@pytest.mark.parametrize("read", [_object, _page, _line])
async def test_a_compressed_response_that_was_not_requested_is_unreadable_and_not_unpacked(
    read: Reader, header: bytes
) -> None:
    bomb = _bomb()
    if header.startswith(b"Transfer"):
        body = header + b", chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(bomb), bomb)
    else:
        body = header + b"\r\nContent-Length: %d\r\n\r\n%s" % (len(bomb), bomb)
    # Not by pieces: bars in the packed bytes would be taken for their ends.
    async with flooded(OK + body, b"") as (_, cluster):
        tracemalloc.start()
        try:
            with pytest.raises(Unreadable, match="compressed"):
                await read(cluster)
            assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
        finally:
            tracemalloc.stop()


async def test_names_of_codings_count_in_any_case() -> None:
    head = OK + b"Content-Encoding: Identity\r\nTransfer-Encoding: Chunked\r\n\r\n"
    async with canned_calls([[head + b"2\r\n{}\r\n0\r\n\r\n"]]) as (_, calls):
        assert await calls.call("GET", "/x") == b"{}"


async def test_the_compressed_body_of_an_error_is_left_out_and_its_status_counts() -> None:
    packed = gzip.compress(b"{}", mtime=0)
    head = b"HTTP/1.1 500 No\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with canned_calls([[head + packed]]) as (_, calls):
        with pytest.raises(Unavailable, match="status 500"):
            await calls.call("GET", "/x")


def _answer(kind: str, namespace: str, name: str, uid: str = "u", version: str = "7") -> bytes:
    metadata = {"name": name, "uid": uid, "resourceVersion": version} | ({"namespace": namespace} if namespace else {})
    body = msgspec.json.encode({"kind": kind, "metadata": metadata, "spec": {"holderIdentity": ""}})
    return OK + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


OTHERS = [
    ("ConfigMap", "ns", "other"),
    ("ConfigMap", "other", "one"),
    ("ConfigMap", "", "one"),
    ("Secret", "ns", "one"),
    ("Status", "ns", "one"),
]
NOBODY = [("ConfigMap", "ns", "one", ""), ("ConfigMap", "ns", "one", "u", ""), ("ConfigMap", "ns", "")]


@pytest.mark.parametrize("other", [*OTHERS, *NOBODY])
@pytest.mark.parametrize(
    "ask",
    [
        lambda cluster: cluster.get(CONFIGMAPS, "ns", "one"),
        lambda cluster: cluster.get(CONFIGMAPS, "ns", "one", metadata_only=True),
        lambda cluster: cluster.patch(CONFIGMAPS, "ns", "one", {}),
        lambda cluster: cluster.update(CONFIGMAPS, "ns", "one", {}),
        lambda cluster: cluster.create(CONFIGMAPS, "ns", {"metadata": {"name": "one"}}),
    ],
    ids=["get", "metadata", "patch", "update", "create"],
)
async def test_an_answer_about_another_object_is_unreadable_and_never_an_absence(
    ask: Callable[[KubernetesClient], Awaitable[object]], other: tuple[str, ...]
) -> None:
    async with canned_calls([[_answer(*other)]]) as (_, calls):
        said = (
            "can't be decoded: .* length >= 1" if other in NOBODY else "ConfigMap ns/one: the answer is another object"
        )
        with pytest.raises(Unreadable, match=said):
            await ask(KubernetesClient("odd", calls))


@pytest.mark.parametrize("kind", ["ConfigMap", "PartialObjectMetadata", ""])
async def test_an_answer_about_the_object_itself_is_taken_in_whole_and_in_part(kind: str) -> None:
    async with canned_calls([[_answer(kind, "ns", "one")]]) as (_, calls):
        found = await KubernetesClient("odd", calls).get(CONFIGMAPS, "ns", "one")
        assert found is not None
        assert (found.namespace, found.name) == ("ns", "one")


async def test_a_cluster_is_not_identified_by_another_namespace_nor_a_crd_by_another() -> None:
    others = [_answer("Namespace", "", "default"), _answer(CRDS.kind, "", "others.knell.test")]
    async with canned_calls([others]) as (_, calls):
        cluster = KubernetesClient("odd", calls)
        with pytest.raises(Unreadable, match=f"{NAMESPACES.kind} kube-system"):
            await cluster.identity()
        with pytest.raises(Unreadable, match=r"others\.knell\.test"):
            await cluster.crd_state("things.knell.test")


async def test_the_lease_of_another_is_not_taken() -> None:
    async with canned_calls([[_answer(LEASES.kind, "ns", "other"), WHOLE]]) as (canned, calls):
        with pytest.raises(Unreadable, match="Lease ns/task"):
            await Lease(KubernetesClient("odd", calls), "ns", "task", "me").try_acquire()
        assert len(canned.requests) == 1
