"""Kubernetes client on servers that refuse, stall, send wrong data or break off."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from service.kubernetes import (
    NAMESPACES,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KubernetesClient,
    NotFound,
    NotServed,
    ServedResource,
    TooMany,
    Unavailable,
    Unreadable,
    WatchEvent,
    WatchStalled,
    connect,
)
from tests.scripted_api import Handler, line, namespace, scripted_api, settings_for, status, thing

THINGS = ServedResource(
    resource="things.knell.test",
    group="knell.test",
    version="v1",
    plural="things",
    kind="Thing",
    namespaced=True,
    status=True,
)
Send = Callable[[bytes], Awaitable[None]]


@asynccontextmanager
async def _cluster(handler: Handler, folder: Path) -> AsyncIterator[KubernetesClient]:
    async with scripted_api(handler) as address, await connect("odd", settings_for(address, folder)) as cluster:
        yield cluster


async def _watched(folder: Path, script: Callable[[Send], Awaitable[None]], silence: float = 10.0) -> list[WatchEvent]:
    """What a watch gave until it ended or raised, with a server that sends what the script says."""

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.query["allowWatchBookmarks"] == "true"
        assert 300 <= int(request.query["timeoutSeconds"]) <= 600
        response = web.StreamResponse()
        await response.prepare(request)
        await script(response.write)
        return response

    changes: list[WatchEvent] = []
    limit = timedelta(seconds=silence)
    async with (
        _cluster(handler, folder) as cluster,
        aclosing(cluster.watch(THINGS, "ns", "", "5", silence=limit)) as watch,
    ):
        try:
            while True:
                changes.append(await anext(watch))
        except StopAsyncIteration:
            return changes
        except ClusterError as error:
            error.add_note(",".join(change.resource_version for change in changes))
            raise


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", Invalid),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotServed),
        (405, "MethodNotAllowed", Invalid),
        (409, "AlreadyExists", Conflict),
        (410, "Expired", Expired),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooMany),
        (500, "InternalError", Unavailable),
        (502, "", Unavailable),
        (503, "ServiceUnavailable", Unavailable),
        (504, "Timeout", Unavailable),
        (301, "", Unavailable),
    ],
)
async def test_every_refusal_has_a_type_and_is_never_absence(
    tmp_path: Path, code: int, reason: str, kind: type[ClusterError]
) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return status(code, reason, "the words of the server")

    async with _cluster(handler, tmp_path) as cluster:
        with pytest.raises(kind, match="the words of the server"):
            await cluster.get(THINGS, "ns", "one")
        with pytest.raises(kind):
            await cluster.discover("things.knell.test")
        with pytest.raises(kind):
            [page async for page in cluster.pages(THINGS, "ns")]
        if code != 404:
            with pytest.raises(kind):
                await cluster.crd_state("things.knell.test")


@pytest.mark.parametrize("code", [429, 503])
async def test_a_server_that_names_a_time_is_given_it(tmp_path: Path, code: int) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/body"):
            return status(code, "Busy", retryAfterSeconds=9)
        return web.Response(status=code, text="later", headers={"Retry-After": "7"})

    async with _cluster(handler, tmp_path) as cluster:
        with pytest.raises(TooMany) as by_header:
            await cluster.get(THINGS, "ns", "one")
        with pytest.raises(TooMany) as by_body:
            await cluster.get(THINGS, "ns", "body")
    assert by_header.value.retry_after == timedelta(seconds=7)
    assert by_body.value.retry_after == timedelta(seconds=9)


async def test_a_missing_namespace_or_a_plain_404_is_not_a_missing_object(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/one"):
            return status(404, "NotFound", name="ns", kind="namespaces")
        if request.path.endswith("/two"):
            return web.Response(status=404, text="404 page not found")
        return status(404, "NotFound", name="three", kind="things", group="knell.test")

    async with _cluster(handler, tmp_path) as cluster:
        with pytest.raises(NotFound):
            await cluster.get(THINGS, "ns", "one")
        with pytest.raises(NotServed):
            await cluster.get(THINGS, "ns", "two")
        assert await cluster.get(THINGS, "ns", "three") is None


def _group(*versions: str) -> web.Response:
    known = [{"version": version} for version in versions]
    return web.json_response({"versions": known, "preferredVersion": known[0]})


def _resources(*plurals: str) -> web.Response:
    known = [{"name": plural, "kind": "Thing", "namespaced": True, "verbs": ["list"]} for plural in plurals]
    return web.json_response({"resources": known})


async def test_a_group_whose_server_is_down_is_unavailable_and_not_absent(tmp_path: Path) -> None:
    up = False

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/apis/knell.test":
            return _group("v1")
        if request.path.startswith("/apis/apiextensions"):
            return status(404, "NotFound", name="things.knell.test", kind="customresourcedefinitions")
        if request.path.startswith("/apis/apiregistration"):
            return web.json_response({"spec": {"service": {"name": "behind"}}})
        return _resources("things") if up else web.Response(status=503, text="service unavailable")

    async with _cluster(handler, tmp_path) as cluster:
        with pytest.raises(Unavailable):
            await cluster.discover("things.knell.test")
        with pytest.raises(Unavailable):
            await cluster.crd_state("things.knell.test")
        up = True
        assert await cluster.crd_state("things.knell.test") == "built-in"
        assert await cluster.crd_state("others.knell.test") == "absent"


async def test_a_crd_just_deleted_is_absent_although_discovery_still_names_it(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/apis/knell.test":
            return _group("v1")
        if request.path == "/apis/knell.test/v1":
            return _resources("things")
        if request.path.startswith("/apis/apiregistration"):
            return web.json_response({"spec": {"group": "knell.test", "version": "v1"}})
        return status(404, "NotFound", name="things.knell.test", kind="customresourcedefinitions")

    async with _cluster(handler, tmp_path) as cluster:
        assert await cluster.crd_state("things.knell.test") == "absent"


async def test_a_preferred_version_that_lacks_the_resource_gives_way_to_another(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/apis/knell.test":
            return _group("v2", "v1")
        return _resources("things") if request.path.endswith("/v1") else _resources()

    async with _cluster(handler, tmp_path) as cluster:
        served = await cluster.discover("things.knell.test")
        assert (served.version, served.status) == ("v1", False)
        with pytest.raises(NotServed):
            await cluster.discover("others.knell.test")


async def test_a_server_that_does_not_answer_in_time_is_unavailable(tmp_path: Path) -> None:
    let_go = asyncio.Event()

    async def handler(_: web.Request) -> web.StreamResponse:
        await let_go.wait()
        return namespace("late")

    async with _cluster(handler, tmp_path) as cluster:
        with pytest.raises(Unavailable, match="in time"):
            await cluster.request("GET", "/api/v1/namespaces/late", timeout=timedelta(seconds=0.2))
        let_go.set()


async def test_an_urgent_call_does_not_wait_behind_slow_ones(tmp_path: Path) -> None:
    let_go, waiting = asyncio.Event(), 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal waiting
        if request.path.endswith("/slow"):
            waiting += 1
            await let_go.wait()
        return namespace(request.path.rpartition("/")[2])

    async with _cluster(handler, tmp_path) as cluster, asyncio.timeout(20), asyncio.TaskGroup() as group:
        for _ in range(200):
            group.create_task(cluster.get(NAMESPACES, "", "slow"))
        await cluster.request("GET", "/api/v1/namespaces/quick", urgent=True)
        let_go.set()
    assert waiting == 200


async def test_an_answer_that_breaks_off_and_a_server_that_is_not_there_are_unavailable(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with scripted_api(handler) as address:
        settings = settings_for(address, tmp_path)
        async with await connect("odd", settings) as cluster:
            with pytest.raises(Unavailable):
                await cluster.get(NAMESPACES, "", "one")
    async with await connect("odd", settings) as cluster:
        with pytest.raises(Unavailable, match="no connection"):
            await cluster.get(NAMESPACES, "", "one")
        with pytest.raises(Unavailable):
            [change async for change in cluster.watch(THINGS, "ns", "", "5", silence=timedelta(seconds=5))]


def _listed(items: list[object], version: str, token: str = "") -> web.Response:
    metadata = {"resourceVersion": version, "continue": token}
    return web.json_response({"kind": "ThingList", "metadata": metadata, "items": items})


async def test_a_list_that_changes_its_resource_version_has_to_start_over(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        first = "continue" not in request.query
        return _listed([thing("a" if first else "b")], "10" if first else "11", "more" if first else "")

    async with _cluster(handler, tmp_path) as cluster:
        pages = cluster.pages(THINGS, None)
        assert [seen.name for seen in (await anext(pages)).items] == ["a"]
        with pytest.raises(Expired):
            await anext(pages)


async def test_a_list_that_expires_in_the_middle_raises(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "continue" in request.query:
            return status(410, "Expired", "the provided continue parameter is too old")
        return _listed([thing("a")], "10", "more")

    async with _cluster(handler, tmp_path) as cluster:
        with pytest.raises(Expired):
            [page async for page in cluster.pages(THINGS, None)]


async def test_a_list_names_what_it_could_not_read(tmp_path: Path) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return _listed([thing("a"), {"metadata": {"name": "b", "uid": 5}}, thing("c")], "10")

    async with _cluster(handler, tmp_path) as cluster:
        (page,) = [page async for page in cluster.pages(THINGS, None)]
    assert [seen.name for seen in page.items] == ["a", "c"]
    assert len(page.unreadable) == 1
    assert "b" in page.unreadable[0]


@pytest.mark.parametrize(
    "body", ["nonsense", "{}", '{"metadata":{}}', '{"metadata":{"resourceVersion":"1"},"items":3}']
)
async def test_a_list_that_is_none_is_unreadable_and_not_empty(tmp_path: Path, body: str) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(text=body)

    async with _cluster(handler, tmp_path) as cluster:
        with pytest.raises(Unreadable):
            [page async for page in cluster.pages(THINGS, None)]


async def test_an_object_that_can_not_be_converted_is_unreadable(tmp_path: Path) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return status(500, "InternalError", "conversion webhook for knell.test/v1, Kind=Thing failed: no route")

    async with _cluster(handler, tmp_path) as cluster:
        with pytest.raises(Unreadable):
            await cluster.get(THINGS, "ns", "one")


async def test_bookmarks_and_lines_in_pieces_arrive_whole(tmp_path: Path) -> None:
    large = {**thing("large"), "spec": {"filler": "x" * 3_000_000}}

    async def script(send: Send) -> None:
        both = line("ADDED", thing("one")) + line("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
        for at in range(0, len(both), 7):
            await send(both[at : at + 7])
        await send(line("MODIFIED", large) + line("DELETED", thing("one")))

    changes = await _watched(tmp_path, script)
    assert [change.kind for change in changes] == ["ADDED", "BOOKMARK", "MODIFIED", "DELETED"]
    assert (changes[1].seen, changes[1].resource_version) == (None, "9")
    assert changes[2].seen is not None
    assert len(msgspec.json.decode(changes[2].seen.raw)["spec"]["filler"]) == 3_000_000


async def test_a_watch_that_expired_says_so_by_status_and_by_event(tmp_path: Path) -> None:
    async def script(send: Send) -> None:
        await send(line("ADDED", thing("one")))
        await send(line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}))

    with pytest.raises(Expired) as caught:
        await _watched(tmp_path, script)
    assert caught.value.__notes__ == ["7"]

    async def handler(_: web.Request) -> web.StreamResponse:
        return status(410, "Gone", "too old resource version")

    async with _cluster(handler, tmp_path) as cluster:
        with pytest.raises(Expired):
            [change async for change in cluster.watch(THINGS, None, "", "5", silence=timedelta(seconds=5))]


async def test_any_other_error_event_and_any_broken_line_end_the_watch(tmp_path: Path) -> None:
    async def failed(send: Send) -> None:
        await send(line("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "oh"}))

    async def broken(send: Send) -> None:
        await send(b"this is no event\n")

    async def unknown(send: Send) -> None:
        await send(line("SURPRISE", thing("one")))

    for script in (failed, broken, unknown):
        with pytest.raises(Unavailable):
            await _watched(tmp_path, script)


async def test_an_unreadable_object_is_named_and_the_watch_goes_on(tmp_path: Path) -> None:
    async def script(send: Send) -> None:
        await send(line("MODIFIED", thing("odd", finalizers="none")))
        await send(line("MODIFIED", {"metadata": {"resourceVersion": "8"}}))
        await send(line("ADDED", thing("good")))

    odd, nameless, good = await _watched(tmp_path, script)
    assert odd.unreadable
    assert odd.seen is not None
    assert (odd.seen.uid, odd.resource_version) == ("uid-odd", "7")
    assert (nameless.seen, nameless.resource_version) == (None, "8")
    assert nameless.unreadable
    assert not good.unreadable


async def test_a_line_that_never_ends_is_no_event(tmp_path: Path) -> None:
    async def script(send: Send) -> None:
        await send(line("ADDED", thing("one")))
        await send(line("ADDED", thing("two"))[:-9])

    (only,) = await _watched(tmp_path, script)
    assert only.seen is not None
    assert only.seen.name == "one"


async def test_a_watch_that_stalls_is_silent_and_bytes_keep_it_alive(tmp_path: Path) -> None:
    async def script(send: Send) -> None:
        for number in range(4):
            await asyncio.sleep(0.3)
            await send(line("BOOKMARK", {"metadata": {"resourceVersion": str(number)}}))
        await asyncio.sleep(30)

    with pytest.raises(WatchStalled) as caught:
        await _watched(tmp_path, script, silence=1.0)
    assert caught.value.__notes__ == ["0,1,2,3"]


@pytest.mark.long
async def test_a_list_of_many_pages_does_not_grow(tmp_path: Path) -> None:
    count, size = 16, 200
    items = [{**thing(f"t{number}"), "spec": {"filler": "x" * 300}} for number in range(size)]
    metadata = {"resourceVersion": "1", "continue": "next"}
    body = msgspec.json.encode({"kind": "ThingList", "metadata": metadata, "items": items})

    async def handler(request: web.Request) -> web.StreamResponse:
        at = int(request.query.get("continue", "0")) + 1
        token = str(at) if at < count else ""
        return web.Response(body=body.replace(b'"continue":"next"', f'"continue":"{token}"'.encode()))

    sizes: list[int] = []
    uids: list[str] = []
    async with _cluster(handler, tmp_path) as cluster:
        tracemalloc.start()
        try:
            number = 0
            async for page in cluster.pages(THINGS, None):
                number += len(page.items)
                uids = [seen.without_raw().uid for seen in page.items]
                sizes.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    assert number == count * size
    assert len(uids) == size
    assert sizes[-1] < sizes[5] + 200_000
