"""Simulated provider and its handler: each response becomes the right verdict, and the log shows every request, in
order and with its time."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from service.contract import Event, Limit
from standins.ports import free_ports
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider
from tests.redis_servers import TestServer
from tests.simulated import (
    Behaviour,
    JournalLine,
    Quota,
    Seed,
    SeededObject,
    SeededResource,
    SimulatedProvider,
    TargetOf,
    read_log,
)
from tests.simulated.handler import DELETES, SOURCE, ProviderUnreachable, SimulatedHandler
from tests.simulated.quota import QuotaMeter

pytestmark = pytest.mark.long

LANE = "simulated/acct/here/delete"


class ProviderWithWorker:
    """A provider in this process, and a worker that serves it."""

    def __init__(self, engine: EngineUnderTest, log: Path, behaviour: Behaviour) -> None:
        self.engine, self.log = engine, log
        self.provider = SimulatedProvider(behaviour, log=log)
        self._provider = ScriptedProvider(draws_on=lambda _lane: None)
        self._uids: list[str] = []

    def add(self, uid: str, *resources: SeededResource, claims: Sequence[str] = ()) -> Event:
        """An object that owns these resources and claims others as well; the answer is the event of its going."""
        targets = [TargetOf(account=one.account, id=one.id) for one in resources]
        targets += [TargetOf(account="acct", id=name) for name in claims]
        owner = SeededObject(uid=uid, owner=uid, targets=tuple(targets))
        self.provider.state.add(Seed(resources=resources, objects=(owner,)))
        self._uids.append(uid)
        return Event(cluster="c1", resource="things", uid=uid, name=uid, source=SOURCE)

    def calls(self, name: str = "") -> list[JournalLine]:
        """Deletes, all or of one resource, as the provider wrote them down."""
        deletes = [line for line in read_log(self.log) if line.method == "DELETE"]
        return [line for line in deletes if name in ("", line.id)]

    def statuses(self, name: str) -> list[int]:
        return [line.status for line in self.calls(name)]

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with (
            self.provider,
            SimulatedHandler(self.provider.address, caller="us", check_after=timedelta(milliseconds=50)) as handler,
        ):
            self._provider.plans = dict.fromkeys(self._uids, handler.plan)
            running = await self.engine.start(self._provider, others=[handler])
            yield
            await running.stop()


@pytest.fixture
async def engine(embedded_server: TestServer) -> AsyncIterator[EngineUnderTest]:
    made = EngineUnderTest(embedded_server.server, embedded_server.settings())
    await made.arrive()
    try:
        yield made
    finally:
        await made.close()


def owned(name: str, owner: str, *, account: str = "acct", reserved: float = 0, takes: float = 0) -> SeededResource:
    return SeededResource(account=account, id=name, owner=owner, reserved=reserved, takes=takes)


async def test_a_resource_is_read_deleted_and_proven_gone(engine: EngineUnderTest, tmp_path: Path) -> None:
    cloud = ProviderWithWorker(engine, tmp_path / "log", Behaviour())
    going = cloud.add("a", owned("x", "a"), claims=["never-there"])
    async with cloud.at_work():
        await engine.publish(going)
        await engine.until_done(going)
    assert cloud.statuses("x") == [204]
    assert cloud.statuses("never-there") == []
    about_x = [line for line in read_log(cloud.log) if "x" in line.id.split(",") and line.what == "request"]
    assert [line.method for line in about_x] == ["GET", "DELETE", "GET"]
    assert {line.caller for line in about_x} == {"us"}


async def test_accepted_is_not_gone(engine: EngineUnderTest, tmp_path: Path) -> None:
    cloud = ProviderWithWorker(engine, tmp_path / "log", Behaviour())
    going = cloud.add("a", owned("x", "a", takes=0.3))
    async with cloud.at_work():
        await engine.publish(going)
        await engine.until_done(going)
        ended = int((await engine.deletion(going))["done_at"]) / 1000
    assert cloud.statuses("x") == [202]
    (gone,) = [line.at for line in read_log(cloud.log) if line.what == "gone"]
    assert ended > gone


async def test_what_is_in_use_waits_for_its_blocker(engine: EngineUnderTest, tmp_path: Path) -> None:
    cloud = ProviderWithWorker(engine, tmp_path / "log", Behaviour())
    blocked = SeededResource(account="acct", id="x", owner="a", blocked_by=("y",))
    going = cloud.add("a", blocked, owned("y", "a", takes=0.3))
    async with cloud.at_work():
        await engine.publish(going)
        job = await engine.until("x is blocked", lambda: _job_with(engine, going, "blocked"))
        assert job["detail"] == "y"
        await engine.until_done(going)
    statuses = cloud.statuses("x")
    assert statuses[-1] == 204
    assert set(statuses[:-1]) == {409}


async def test_a_reservation_is_waited_for(engine: EngineUnderTest, tmp_path: Path) -> None:
    cloud = ProviderWithWorker(engine, tmp_path / "log", Behaviour(scale=180))
    going = cloud.add("a", owned("x", "a", reserved=180))
    async with cloud.at_work():
        await engine.publish(going)
        await engine.until_done(going)
    refused, accepted = cloud.calls("x")
    assert (refused.status, accepted.status) == (400, 204)
    assert refused.reserved_until is not None
    assert refused.reserved_until - refused.arrived >= 0.99
    assert accepted.arrived >= refused.reserved_until


async def test_what_is_tagged_as_another_s_is_refused_and_never_called(engine: EngineUnderTest, tmp_path: Path) -> None:
    cloud = ProviderWithWorker(engine, tmp_path / "log", Behaviour())
    going = cloud.add("a", owned("x", "a"), claims=["theirs"])
    cloud.add("b", owned("theirs", "b"))
    async with cloud.at_work():
        await engine.publish(going)
        job = await engine.until("it is refused", lambda: _job_with(engine, going, "refused"))
        assert "tagged with owner b, not a" in job["detail"]
    assert cloud.statuses("theirs") == []
    assert await engine.state(going) == "running"


async def test_a_failed_call_is_tried_again(engine: EngineUnderTest, tmp_path: Path) -> None:
    cloud = ProviderWithWorker(engine, tmp_path / "log", Behaviour(errors=0.6, seed=3))
    going = cloud.add("a", *(owned(f"x{number}", "a") for number in range(10)))
    async with cloud.at_work():
        await engine.publish(going)
        await engine.until_done(going)
    assert 500 in {line.status for line in cloud.calls()}
    assert all(cloud.statuses(f"x{number}")[-1] == 204 for number in range(10))


async def test_an_object_that_the_provider_does_not_know_is_held(engine: EngineUnderTest, tmp_path: Path) -> None:
    cloud = ProviderWithWorker(engine, tmp_path / "log", Behaviour())
    going = cloud.add("a")
    del cloud.provider.state.objects["a"]
    async with cloud.at_work():
        await engine.publish(going)

        async def held() -> bool:
            return await engine.state(going) == "held"

        await engine.until("it is held", held)
    assert "knows no object a" in (await engine.deletion(going))["held"]


@pytest.mark.parametrize("told", [True, False], ids=["with headers", "without"])
async def test_no_call_comes_during_a_pause_and_another_account_goes_on(
    engine: EngineUnderTest, tmp_path: Path, told: bool
) -> None:
    quota = Quota(capacity=15, per=timedelta(seconds=2), kind="window")
    cloud = ProviderWithWorker(engine, tmp_path / "log", Behaviour(quota=quota, remaining_header=told, scale=1.0000001))
    hot = cloud.add("hot", *(owned(f"h{number}", "hot") for number in range(30)))
    cold = cloud.add("cold", *(owned(f"c{number}", "cold", account="other") for number in range(5)))
    async with cloud.at_work():
        # Another client has used up the tokens that the budget still counts.
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{cloud.provider.address}/accounts/acct/spend", json={"tokens": 15}) as answer,
        ):
            assert await answer.json() == {"taken": 15}
        await engine.publish(hot, cold)
        await engine.until_done(hot, cold)
    calls = [line for line in cloud.calls() if line.account == "acct"]
    throttled = [line for line in calls if line.status == 429]
    assert throttled
    # Calls that left before a refusal came back could not know of it.
    checked = 0.0
    for refusal in throttled:
        assert refusal.retry_until is not None
        heard = refusal.at + 0.3
        assert [line for line in calls if heard < line.arrived < refusal.retry_until] == []
        checked = max(checked, refusal.retry_until - heard)
    assert checked > 0.5
    assert {line.status for line in cloud.calls() if line.account == "other"} == {204}
    for job in await engine.jobs_of(hot):
        assert (await engine.job(job)).get("attempts", "0") == "0"


async def test_the_limit_is_what_the_provider_says_unless_it_is_given(tmp_path: Path) -> None:
    quota = Quota(capacity=100, per=timedelta(seconds=300), kind="window")
    async with SimulatedProvider(Behaviour(quota=quota, scale=30), log=tmp_path / "log") as provider:
        async with SimulatedHandler(provider.address, spare=5) as asked:
            (draw,) = asked.draws(LANE) or ()
            assert draw.limit == Limit.window(DELETES, 100, timedelta(seconds=10), spare=5)
            assert asked.draws("simulated/acct/here/read") == ()
            assert asked.draws("cluster/c1/release") is None
        given = Limit.bucket(DELETES, 7, 1)
        async with SimulatedHandler(provider.address, limit=given) as told:
            (draw,) = told.draws(LANE) or ()
            assert draw.limit == given


def test_a_bucket_gives_no_more_than_capacity_and_refill() -> None:
    behaviour = Behaviour(quota=Quota(capacity=10, per=timedelta(seconds=5)))
    assert behaviour.quota is not None
    meter = QuotaMeter.of(behaviour.quota, behaviour, 0.0)
    given = sum(meter.spend(tick / 100) for tick in range(1000))
    assert given == 10 + 2 * 9.99 // 1
    assert meter.wait(9.99) == pytest.approx(0.01, abs=0.001)


def test_a_window_is_full_at_its_start_and_empty_when_used() -> None:
    behaviour = Behaviour(quota=Quota(capacity=3, per=timedelta(seconds=60), kind="window"), scale=6)
    assert behaviour.quota is not None
    meter = QuotaMeter.of(behaviour.quota, behaviour, 100.0)
    assert [meter.spend(101.0) for _ in range(4)] == [True, True, True, False]
    assert meter.wait(101.0) == pytest.approx(9)
    assert not meter.spend(109.9)
    assert meter.spend(110.0)
    assert meter.remaining(135.0) == 3


async def _job_with(engine: EngineUnderTest, one: Event, verdict: str) -> dict[str, str]:
    if not (await engine.deletion(one)).get("plan"):
        return {}
    for job in await engine.jobs_of(one):
        record = await engine.job(job)
        if record.get("verdict") == verdict:
            return record
    return {}


@pytest.mark.parametrize("address", ["http://127.0.0.1:{port}", "nowhere", "http://"])
async def test_a_provider_that_can_not_be_reached_is_away_whatever_the_client_calls_it(address: str) -> None:
    (port,) = free_ports(1)
    with pytest.raises(ProviderUnreachable, match=r"."):
        async with SimulatedHandler(address.format(port=port)):
            pass
