"""HTTP endpoints of a long-running process: liveness, readiness with reasons, and metrics."""

import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.parser import text_string_to_metric_families

from service.engine.guard import DeletedObject, Guard
from service.engine.script_arguments import CHUNK, UnplannedEvent, event_fields
from service.engine.views.overview import overview
from service.settings import GuardSettings, RedisSettings, RedisUrl, Secret, Settings, SurfaceSettings
from service.web import Health, Metrics, ProcessCounts, WebServer, WebServerFailed, redis_probe
from service.web.metrics import MAX_LANES, OTHERS
from service.web.redis_probe import RedisProbe
from service.web.shard_stats import read_lag
from standins.redis_servers import LocalRedis
from tests.engine.engine_under_test import LEASE, EngineUnderTest
from tests.engine.scripted_provider import event, thing
from tests.engine.waiting import until
from tests.redis_servers import TestServer

SURFACE = SurfaceSettings(host="127.0.0.1", port=0)


class WebClient:
    """Sends requests to one web server, as a probe and a scrape would."""

    def __init__(self, server: WebServer, session: aiohttp.ClientSession) -> None:
        self._server, self._session = server, session

    async def get(self, path: str) -> tuple[int, str]:
        async with self._session.get(f"http://127.0.0.1:{self._server.port}{path}") as answer:
            text = await answer.text()
            return answer.status, text

    async def answer(self, method: str, path: str) -> aiohttp.ClientResponse:
        async with self._session.request(method, f"http://127.0.0.1:{self._server.port}{path}") as answer:
            await answer.read()
            return answer

    async def readiness(self) -> tuple[int, dict[str, Any]]:
        status, text = await self.get("/readyz")
        return status, msgspec.json.decode(text)

    async def numbers(self, *, up: int = 1) -> dict[tuple[str, ...], float]:
        """(metric, label, ...) -> value, from a scrape with this value of knell_redis_up."""

        async def whole() -> str:
            _, text = await self.get("/metrics")
            return text if f"knell_redis_up {up}.0" in text else ""

        text = await until(f"knell_redis_up is {up}", whole)
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@asynccontextmanager
async def web_client(
    redis: RedisSettings,
    *,
    stage: Callable[[], str] = lambda: "working",
    counts: Callable[[], ProcessCounts] = ProcessCounts,
    own_outage: Callable[[], tuple[float, str] | None] | None = None,
) -> AsyncIterator[WebClient]:
    probe = RedisProbe(Settings(redis=redis), own_outage)
    try:
        async with (
            WebServer(SURFACE, Health(probe, stage), Metrics(probe, counts)) as server,
            aiohttp.ClientSession() as session,
        ):
            yield WebClient(server, session)
    finally:
        await probe.aclose()


@pytest.fixture
async def engine(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EngineUnderTest]:
    """Its server answers, if not always within a second on a busy machine."""
    monkeypatch.setattr(redis_probe, "TIMEOUT", timedelta(seconds=30))
    made = EngineUnderTest(server.server, server.settings())
    await made.arrive()
    try:
        yield made
    finally:
        await made.close()


async def test_a_process_whose_server_answers_is_alive_and_ready(engine: EngineUnderTest) -> None:
    async with web_client(engine.settings.redis) as client:
        assert await client.get("/healthz") == (200, "alive\n")
        assert await client.readiness() == (200, {"ready": True, "hindrances": []})


async def test_every_page_has_its_content_type_also_for_head_requests(engine: EngineUnderTest) -> None:
    kinds = {
        "/healthz": "text/plain; charset=utf-8",
        "/readyz": "application/json",
        "/metrics": CONTENT_TYPE_LATEST,
    }
    async with web_client(engine.settings.redis) as client:
        for path, kind in kinds.items():
            asked, only_head = await client.answer("GET", path), await client.answer("HEAD", path)
            assert (asked.status, asked.headers["Content-Type"]) == (200, kind)
            assert (only_head.status, only_head.headers["Content-Type"]) == (200, kind)
            assert int(only_head.headers["Content-Length"]) > 0
        assert (await client.answer("POST", "/readyz")).status == 405
        assert (await client.answer("GET", "/")).status == 404


async def test_a_process_that_starts_or_stops_is_alive_and_not_ready(engine: EngineUnderTest) -> None:
    stage = "starting"
    async with web_client(engine.settings.redis, stage=lambda: stage) as client:
        for stage in ("starting", "stopping"):
            status, body = await client.readiness()
            assert (status, [one["what"] for one in body["hindrances"]]) == (503, [stage])
            assert (await client.get("/healthz"))[0] == 200
        stage = "working"
        assert (await client.readiness())[0] == 200


async def test_a_redis_that_refuses_writes_is_reported_by_the_calls_of_the_process(engine: EngineUnderTest) -> None:
    since = time.monotonic() - 60
    trouble = (since, "OutOfMemoryError: redis://user:secret@host/0 is full")
    async with web_client(engine.settings.redis, own_outage=lambda: trouble) as client:
        status, body = await client.readiness()
        (one,) = body["hindrances"]
        assert (status, one["what"]) == (503, "redis")
        assert "is full" in one["why"]
        assert "secret" not in one["why"]
        age = datetime.now(UTC) - datetime.fromisoformat(one["since"])
        assert timedelta(seconds=59) < age < timedelta(seconds=time.monotonic() - since + 1)


async def test_a_dead_redis_is_reported_with_its_time_and_process_metrics_are_still_served() -> None:
    with LocalRedis() as server:
        counts = ProcessCounts(taken=7, settled={"gone": 4, "throttled": 2}, planned=3, held=1, in_hand=1)
        async with web_client(server.settings(), counts=lambda: counts) as client:
            assert (await client.readiness())[0] == 200
            assert (await client.numbers())["knell_redis_up",] == 1
            killed = datetime.now(UTC)
            server.kill()

            async def down() -> list[dict[str, Any]]:
                hindrances: list[dict[str, Any]] = (await client.readiness())[1]["hindrances"]
                return hindrances

            (one,) = await until("it is not ready", down)
            assert one["what"] == "redis"
            assert "ConnectionError" in one["why"]
            assert killed - timedelta(seconds=1) <= datetime.fromisoformat(one["since"]) <= datetime.now(UTC)
            assert (await client.get("/healthz"))[0] == 200
            numbers = await client.numbers(up=0)
            assert numbers["knell_redis_up",] == 0
            assert numbers["knell_process_taken_total",] == 7
            assert numbers["knell_process_settled_total", "gone"] == 4
            assert numbers["knell_process_throttled_total",] == 2
            assert numbers["knell_process_planned_total",] == 3
            assert numbers["knell_process_held_total",] == 1
            assert not [name for name in numbers if name[0] == "knell_due_jobs"]
            server.restart()

            async def up() -> bool:
                return (await client.readiness())[0] == 200

            await until("it is ready again", up)
            assert (await client.numbers())["knell_redis_up",] == 1


async def test_a_hung_redis_delays_neither_probe_nor_scrape() -> None:
    with LocalRedis() as server:
        async with web_client(server.settings()) as client:
            assert (await client.readiness())[0] == 200
            server.freeze()
            try:
                _, text = await client.get("/metrics")
                assert "knell_redis_up 0.0" in text
                status, text = await client.get("/readyz")
                assert status == 503
                assert "no answer within 1 s" in text
            finally:
                server.thaw()


async def test_a_refused_login_shows_no_password() -> None:
    with LocalRedis() as server:
        with server.admin() as admin:
            admin.config_set("requirepass", "the-right-one")
        password = "the-wrong-one"
        url = RedisUrl("redis", host=server.host, port=server.port, username="me", password=Secret(password))
        async with web_client(RedisSettings(url=url)) as client:
            status, text = await client.get("/readyz")
            assert status == 503
            _, page = await client.get("/metrics")
            assert "knell_redis_up 0.0" in page
            assert password not in text + page


async def test_waiting_entries_are_counted_apart_from_held_ones(engine: EngineUnderTest) -> None:
    for uid, where in (("a", "waiting"), ("b", "waiting"), ("c", "held")):
        entry = await engine.deliver(one := event(uid))
        assert (
            await engine.shard(one).hold(
                [UnplannedEvent(entry, where, "why", one.deletion, event_fields(one), 3_600_000)]
            )
            == 1
        )
    await engine.tidy()
    async with web_client(engine.settings.redis) as client:
        numbers = await client.numbers()
    for metric, expected in (("knell_waiting", 2), ("knell_held", 1)):
        assert sum(value for (name, *_), value in numbers.items() if name == metric) == expected


async def test_the_metrics_are_those_of_all_shards(engine: EngineUnderTest) -> None:
    shards = len(engine.installation.shards)
    events = [event(f"e{number}") for number in range(40)]
    for one in events[:20]:
        await engine.lay(one, [thing(one.uid, "sim/acct/a"), thing(f"{one.uid}-b", "sim/acct/b")])
    await engine.publish(*events[20:])
    taken = sum([len(lane.jobs) for one in events[:20] for lane in (await engine.take(one, "w", "sim/acct/a")).lanes])
    await engine.tidy()
    async with web_client(engine.settings.redis) as client:
        numbers = await client.numbers()

    def total(metric: str, *labels: str) -> float:
        return sum(numbers[metric, str(shard), *labels] for shard in range(shards))

    assert taken == 20
    assert total("knell_leased_jobs") == 20
    assert total("knell_due_jobs") == total("knell_queued_jobs") == 20
    assert total("knell_open_deletions") == 40
    assert total("knell_events") == total("knell_events_lag") == 20
    assert total("knell_moves_total", "published") == 40
    assert total("knell_held") == total("knell_dead_jobs") == total("knell_newer") == 0
    assert numbers["knell_lane_leased_jobs", "sim/acct/a"] == 20
    assert numbers["knell_lane_due_jobs", "sim/acct/b"] == 20
    assert max(numbers["knell_oldest_due_seconds", str(shard)] for shard in range(shards)) > 0
    assert all(numbers["knell_survey_age_seconds", str(shard)] < 60 for shard in range(shards))


async def test_planners_that_died_alone_with_an_event_are_counted(engine: EngineUnderTest) -> None:
    one, soon = event("a"), timedelta(0)
    await engine.deliver(one)
    for worker in ("first", "second", "finder"):
        await engine.shard(one).claim(worker, silent=soon, silence=LEASE)
    async with web_client(engine.settings.redis) as client:
        numbers = await client.numbers()
    found = {
        shard: numbers["knell_moves_total", str(shard.number), "planner_deaths"] for shard in engine.installation.shards
    }
    assert found == {shard: float(shard is engine.shard(one)) for shard in engine.installation.shards}
    totals = (await overview(engine.installation)).totals
    assert totals.planner_deaths == 1


async def test_a_guard_that_holds_is_exported_by_source(engine: EngineUnderTest) -> None:
    guard, two = Guard(engine.installation), GuardSettings(most=2, percent=100)
    await guard.admit("clusters", [DeletedObject(f"u{number}", 0) for number in range(7)], two)
    await guard.admit("buckets", [DeletedObject("u0", 0)], two)
    async with web_client(engine.settings.redis) as client:
        numbers = await client.numbers()
        assert (numbers["knell_guard_tripped", "0"], numbers["knell_guard_held", "clusters"]) == (1, 5)
        assert (numbers["knell_guard_counted", "clusters"], numbers["knell_guard_held", "buckets"]) == (2, 0)
        await guard.release("clusters", "tests")
        numbers = await client.numbers()
        assert (numbers["knell_guard_tripped", "0"], numbers["knell_guard_held", "clusters"]) == (0, 0)


async def test_a_lag_that_redis_does_not_report_is_counted(engine: EngineUnderTest) -> None:
    events = engine.installation.shards[0].stem + "events"
    entries = [await engine.client.xadd(events, {"n": number}) for number in range(6)]
    await engine.client.xreadgroup("planners", "hand", {events: ">"}, count=2)
    assert await read_lag(engine.client, events) == (4, 2)
    await engine.client.xdel(events, entries[3])
    (group,) = await engine.client.xinfo_groups(events)
    assert group["lag"] is None
    assert await read_lag(engine.client, events) == (3, 2)


async def test_events_that_were_never_delivered_are_a_lag(engine: EngineUnderTest) -> None:
    events = engine.settings.redis.prefix + ":{0}:unread"
    assert await read_lag(engine.client, events) == (0, 0)
    for number in range(3):
        await engine.client.xadd(events, {"n": number})
    assert await read_lag(engine.client, events) == (3, 0)


async def test_lanes_beyond_the_limit_are_exported_as_one_sum(engine: EngineUnderTest) -> None:
    one = event("many")
    await engine.lay(one, [thing(f"t{number}", f"sim/acct/lane-{number}") for number in range(MAX_LANES + 50)])
    assert MAX_LANES + 51 < CHUNK
    await engine.tidy()
    async with web_client(engine.settings.redis) as client:
        numbers = await client.numbers()
    lanes = [name for name in numbers if name[0] == "knell_lane_due_jobs"]
    assert len(lanes) == MAX_LANES + 1
    assert numbers["knell_lane_due_jobs", OTHERS] == 50
    assert numbers["knell_lanes",] >= MAX_LANES + 50
    assert sum(numbers[name] for name in lanes) == MAX_LANES + 50


async def test_a_taken_port_is_reported_in_one_sentence(engine: EngineUnderTest) -> None:
    probe = RedisProbe(engine.settings)
    try:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            settings = SurfaceSettings(host="127.0.0.1", port=other.getsockname()[1])
            server = WebServer(settings, Health(probe, lambda: "working"), Metrics(probe))
            with pytest.raises(WebServerFailed, match=r"can't listen on 127.0.0.1:\d+ .* set surface.host"):
                await server.start()
    finally:
        await probe.aclose()
