"""What a long-running process shows: alive, ready or why not, and numbers that are true or not there at all."""

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

from service.engine.guard import Going, Guard
from service.engine.rows import CHUNK, Kept, flat
from service.engine.views.overview import overview
from service.settings import GuardSettings, RedisSettings, RedisUrl, Secret, Settings, SurfaceSettings
from service.web import Health, Metrics, ProcessCounts, Surface, SurfaceFailed
from service.web.metrics import MOST_LANES, OTHERS
from service.web.numbers import read_lag
from service.web.watch import Watch
from standins.servers import Server
from tests.engine.outside import event, thing
from tests.engine.waiting import until
from tests.engine.world import LEASE, World
from tests.servers import TestServer

SURFACE = SurfaceSettings(host="127.0.0.1", port=0)


class Looker:
    """Asks one surface, as a probe and a scrape would."""

    def __init__(self, surface: Surface, session: aiohttp.ClientSession) -> None:
        self._surface, self._session = surface, session

    async def get(self, path: str) -> tuple[int, str]:
        async with self._session.get(f"http://127.0.0.1:{self._surface.port}{path}") as answer:
            text = await answer.text()
            return answer.status, text

    async def answer(self, method: str, path: str) -> aiohttp.ClientResponse:
        async with self._session.request(method, f"http://127.0.0.1:{self._surface.port}{path}") as answer:
            await answer.read()
            return answer

    async def readiness(self) -> tuple[int, dict[str, Any]]:
        status, text = await self.get("/readyz")
        return status, msgspec.json.decode(text)

    async def numbers(self, *, up: int = 1) -> dict[tuple[str, ...], float]:
        """(metric, label, ...) -> value, of a page for which Redis answered in time, or did not."""

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
async def surfaced(
    redis: RedisSettings,
    *,
    stage: Callable[[], str] = lambda: "working",
    counts: Callable[[], ProcessCounts] = ProcessCounts,
    suffered: Callable[[], tuple[float, str] | None] | None = None,
) -> AsyncIterator[Looker]:
    watch = Watch(Settings(redis=redis), suffered)
    try:
        async with (
            Surface(SURFACE, Health(watch, stage), Metrics(watch, counts)) as surface,
            aiohttp.ClientSession() as session,
        ):
            yield Looker(surface, session)
    finally:
        await watch.aclose()


@pytest.fixture
async def world(server: TestServer) -> AsyncIterator[World]:
    made = World(server.server, server.settings())
    await made.arrive()
    try:
        yield made
    finally:
        await made.close()


async def test_a_process_whose_server_answers_is_alive_and_ready(world: World) -> None:
    async with surfaced(world.settings.redis) as looker:
        assert await looker.get("/healthz") == (200, "alive\n")
        assert await looker.readiness() == (200, {"ready": True, "hindrances": []})


async def test_every_page_says_its_type_also_to_those_who_want_no_more_than_the_head(world: World) -> None:
    kinds = {
        "/healthz": "text/plain; charset=utf-8",
        "/readyz": "application/json",
        "/metrics": CONTENT_TYPE_LATEST,
    }
    async with surfaced(world.settings.redis) as looker:
        for path, kind in kinds.items():
            asked, only_head = await looker.answer("GET", path), await looker.answer("HEAD", path)
            assert (asked.status, asked.headers["Content-Type"]) == (200, kind)
            assert (only_head.status, only_head.headers["Content-Type"]) == (200, kind)
            assert int(only_head.headers["Content-Length"]) > 0
        assert (await looker.answer("POST", "/readyz")).status == 405
        assert (await looker.answer("GET", "/")).status == 404


async def test_a_process_that_starts_or_stops_is_alive_and_not_ready(world: World) -> None:
    stage = "starting"
    async with surfaced(world.settings.redis, stage=lambda: stage) as looker:
        for stage in ("starting", "stopping"):
            status, body = await looker.readiness()
            assert (status, [one["what"] for one in body["hindrances"]]) == (503, [stage])
            assert (await looker.get("/healthz"))[0] == 200
        stage = "working"
        assert (await looker.readiness())[0] == 200


async def test_a_server_that_can_not_write_is_told_by_the_calls_that_suffer_from_it(world: World) -> None:
    since = time.monotonic() - 60
    trouble = (since, "OutOfMemoryError: redis://user:secret@host/0 is full")
    async with surfaced(world.settings.redis, suffered=lambda: trouble) as looker:
        status, body = await looker.readiness()
        (one,) = body["hindrances"]
        assert (status, one["what"]) == (503, "redis")
        assert "is full" in one["why"]
        assert "secret" not in one["why"]
        age = datetime.now(UTC) - datetime.fromisoformat(one["since"])
        assert timedelta(seconds=59) < age < timedelta(seconds=time.monotonic() - since + 1)


async def test_a_dead_server_is_named_with_the_time_and_numbers_come_all_the_same() -> None:
    with Server() as server:
        counts = ProcessCounts(taken=7, settled={"gone": 4, "throttled": 2}, planned=3, held=1, in_hand=1)
        async with surfaced(server.settings(), counts=lambda: counts) as looker:
            assert (await looker.readiness())[0] == 200
            assert (await looker.numbers())["knell_redis_up",] == 1
            killed = datetime.now(UTC)
            server.kill()

            async def down() -> list[dict[str, Any]]:
                hindrances: list[dict[str, Any]] = (await looker.readiness())[1]["hindrances"]
                return hindrances

            (one,) = await until("it is not ready", down)
            assert one["what"] == "redis"
            assert "ConnectionError" in one["why"]
            assert killed - timedelta(seconds=1) <= datetime.fromisoformat(one["since"]) <= datetime.now(UTC)
            assert (await looker.get("/healthz"))[0] == 200
            numbers = await looker.numbers(up=0)
            assert numbers["knell_redis_up",] == 0
            assert numbers["knell_process_taken_total",] == 7
            assert numbers["knell_process_settled_total", "gone"] == 4
            assert numbers["knell_process_throttled_total",] == 2
            assert numbers["knell_process_planned_total",] == 3
            assert numbers["knell_process_held_total",] == 1
            assert not [name for name in numbers if name[0] == "knell_due_jobs"]
            server.restart()

            async def up() -> bool:
                return (await looker.readiness())[0] == 200

            await until("it is ready again", up)
            assert (await looker.numbers())["knell_redis_up",] == 1


async def test_a_hung_server_holds_up_neither_probe_nor_scrape() -> None:
    with Server() as server:
        async with surfaced(server.settings()) as looker:
            assert (await looker.readiness())[0] == 200
            server.freeze()
            try:
                _, text = await looker.get("/metrics")
                assert "knell_redis_up 0.0" in text
                status, text = await looker.get("/readyz")
                assert status == 503
                assert "no answer within 1 s" in text
            finally:
                server.thaw()


async def test_a_refused_login_shows_no_password() -> None:
    with Server() as server:
        with server.admin() as admin:
            admin.config_set("requirepass", "the-right-one")
        password = "the-wrong-one"
        url = RedisUrl("redis", host=server.host, port=server.port, username="me", password=Secret(password))
        async with surfaced(RedisSettings(url=url)) as looker:
            status, text = await looker.get("/readyz")
            assert status == 503
            _, page = await looker.get("/metrics")
            assert "knell_redis_up 0.0" in page
            assert password not in text + page


async def test_what_waits_by_itself_is_a_number_apart_from_what_needs_a_person(world: World) -> None:
    for uid, where in (("a", "waiting"), ("b", "waiting"), ("c", "held")):
        entry = await world.deliver(one := event(uid))
        assert await world.shard(one).hold([Kept(entry, where, "why", one.deletion, flat(one), 3_600_000)]) == 1
    await world.tidy()
    async with surfaced(world.settings.redis) as looker:
        numbers = await looker.numbers()
    for metric, expected in (("knell_waiting", 2), ("knell_held", 1)):
        assert sum(value for (name, *_), value in numbers.items() if name == metric) == expected


async def test_the_numbers_are_those_of_all_shards(world: World) -> None:
    shards = len(world.installation.shards)
    events = [event(f"e{number}") for number in range(40)]
    for one in events[:20]:
        await world.lay(one, [thing(one.uid, "sim/acct/a"), thing(f"{one.uid}-b", "sim/acct/b")])
    await world.publish(*events[20:])
    taken = sum([len(lane.jobs) for one in events[:20] for lane in (await world.take(one, "w", "sim/acct/a")).lanes])
    await world.tidy()
    async with surfaced(world.settings.redis) as looker:
        numbers = await looker.numbers()

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


async def test_planners_that_died_alone_with_an_event_are_counted(world: World) -> None:
    one, soon = event("a"), timedelta(0)
    await world.deliver(one)
    for worker in ("first", "second", "finder"):
        await world.shard(one).claim(worker, silent=soon, silence=LEASE)
    async with surfaced(world.settings.redis) as looker:
        numbers = await looker.numbers()
    found = {
        shard: numbers["knell_moves_total", str(shard.number), "planner_deaths"] for shard in world.installation.shards
    }
    assert found == {shard: float(shard is world.shard(one)) for shard in world.installation.shards}
    totals = (await overview(world.installation)).totals
    assert totals.planner_deaths == 1


async def test_a_guard_that_holds_shows_in_the_numbers_by_source(world: World) -> None:
    guard, two = Guard(world.installation), GuardSettings(most=2, percent=100)
    await guard.admit("clusters", [Going(f"u{number}", 0) for number in range(7)], two)
    await guard.admit("buckets", [Going("u0", 0)], two)
    async with surfaced(world.settings.redis) as looker:
        numbers = await looker.numbers()
        assert (numbers["knell_guard_tripped", "0"], numbers["knell_guard_held", "clusters"]) == (1, 5)
        assert (numbers["knell_guard_counted", "clusters"], numbers["knell_guard_held", "buckets"]) == (2, 0)
        await guard.release("clusters", "tests")
        numbers = await looker.numbers()
        assert (numbers["knell_guard_tripped", "0"], numbers["knell_guard_held", "clusters"]) == (0, 0)


async def test_a_lag_that_the_server_gave_up_on_is_counted(world: World) -> None:
    events = world.installation.shards[0].stem + "events"
    entries = [await world.client.xadd(events, {"n": number}) for number in range(6)]
    await world.client.xreadgroup("planners", "hand", {events: ">"}, count=2)
    assert await read_lag(world.client, events) == (4, 2)
    await world.client.xdel(events, entries[3])
    (group,) = await world.client.xinfo_groups(events)
    assert group["lag"] is None
    assert await read_lag(world.client, events) == (3, 2)


async def test_events_that_nobody_ever_read_are_a_lag(world: World) -> None:
    events = world.settings.redis.prefix + ":{0}:unread"
    assert await read_lag(world.client, events) == (0, 0)
    for number in range(3):
        await world.client.xadd(events, {"n": number})
    assert await read_lag(world.client, events) == (3, 0)


async def test_lanes_beyond_the_limit_are_one_sum(world: World) -> None:
    one = event("many")
    await world.lay(one, [thing(f"t{number}", f"sim/acct/lane-{number}") for number in range(MOST_LANES + 50)])
    assert MOST_LANES + 51 < CHUNK
    await world.tidy()
    async with surfaced(world.settings.redis) as looker:
        numbers = await looker.numbers()
    lanes = [name for name in numbers if name[0] == "knell_lane_due_jobs"]
    assert len(lanes) == MOST_LANES + 1
    assert numbers["knell_lane_due_jobs", OTHERS] == 50
    assert numbers["knell_lanes",] >= MOST_LANES + 50
    assert sum(numbers[name] for name in lanes) == MOST_LANES + 50


async def test_a_port_that_is_taken_is_said_in_one_sentence(world: World) -> None:
    watch = Watch(world.settings)
    try:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            settings = SurfaceSettings(host="127.0.0.1", port=other.getsockname()[1])
            surface = Surface(settings, Health(watch, lambda: "working"), Metrics(watch))
            with pytest.raises(SurfaceFailed, match=r"can't listen on 127.0.0.1:\d+ .* set surface.host"):
                await surface.start()
    finally:
        await watch.aclose()
