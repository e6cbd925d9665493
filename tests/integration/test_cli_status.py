"""`knell status` shows the live data on every kind of server, with and without workers."""

import asyncio
import json
import os
import pty
import select
import signal
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from service.contract import Draw, Hold, Limit
from service.engine.budgets import LimitFeedback, ReservationRequest
from standins.redis_servers import LocalRedis
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider, event, thing
from tests.integration.command_line import environment, invoke, knell, operated, start
from tests.redis_servers import TestServer


@pytest.fixture
async def engine(server: TestServer) -> AsyncIterator[EngineUnderTest]:
    async with operated(server) as made:
        yield made


async def test_status_counts_the_live_sets_without_any_worker(engine: EngineUnderTest) -> None:
    first, second = event("a"), event("b")
    await engine.lay(first, [thing("1"), thing("2"), thing("3", after=timedelta(hours=1))])
    await engine.lay(second, [thing("4", "aws/7/ec2.Delete")])
    await engine.publish(event("unread"))
    await engine.take(first, "hand", "sim/acct/delete", 1)

    answer = await knell(engine, "status", "--output", "json")

    picture = answer.json
    assert (answer.code, answer.err) == (0, "")
    totals = picture["totals"]
    expected = {"events": 1, "lag": 1, "planning": 0, "open": 3, "due": 2, "queued": 3, "leased": 1}
    assert {name: totals[name] for name in expected} == expected
    lanes = {lane["lane"]: (lane["due"], lane["queued"], lane["leased"]) for lane in picture["lanes"]}
    assert lanes == {"sim/acct/delete": (1, 2, 1), "aws/7/ec2.Delete": (1, 1, 0)}
    assert totals["oldest"] >= 0
    assert totals["shards"] == len(engine.installation.shards)


async def test_status_shows_undecodable_events_and_everything_else_that_is_held_or_parked(
    engine: EngineUnderTest,
) -> None:
    provider = ScriptedProvider(plans={"odd": Hold("no such account")})
    await engine.start(provider)
    stem = engine.installation.shards[0].stem
    await engine.client.xadd(stem + "events", {"v": "x", "what": b"\xff\xfe"})
    await engine.client.xadd(stem + "events", {"v": "99"})
    await engine.publish(event("odd"))

    async def all_judged() -> bool:
        return len(await engine.members("held")) == 2 and len(await engine.members("newer")) == 1

    await engine.until("both are held and one is parked", all_judged)
    totals = (await knell(engine, "status", "--output", "json")).json["totals"]
    assert (totals["held"], totals["held_events"], totals["held_deletions"], totals["newer"]) == (2, 1, 1, 1)
    assert totals["workers"] == 1
    table = (await knell(engine, "status")).out
    assert "2  (1 events, 1 deletions, 0 jobs)" in table
    assert "knell held list" in table


async def test_status_shows_pauses_dry_lanes_and_budgets(engine: EngineUnderTest) -> None:
    going = event("a")
    await engine.lay(going, [thing("1")])
    limit = Limit.bucket("deletes", 100, 0.001)
    await engine.installation.budgets.reserve(
        "sim/acct", 0.1, [ReservationRequest("sim/acct/delete", 30, 30, 0, (Draw(limit),))]
    )
    shard = engine.shard(going)
    await shard.pause("sim/acct/delete", stop=True, who="ops")
    await engine.client.hset(shard.stem + "dry", "sim/acct/delete", await engine.now() + 60_000)

    picture = (await knell(engine, "--output", "json", "status")).json
    (lane,) = picture["lanes"]
    assert lane["paused"] is True
    assert lane["dry_until"] > picture["at"]
    assert [(pause["lane"], pause["who"]) for pause in picture["paused"]] == [("sim/acct/delete", "ops")]
    (budget,) = picture["budgets"]
    assert (budget["place"], budget["limit"], budget["capacity"]) == ("sim/acct", "deletes", 100)
    assert budget["tokens"] == pytest.approx(70, abs=0.5)
    assert (budget["factor"], budget["paused_until"]) == (1, None)

    await engine.installation.budgets.correct("sim/acct", [LimitFeedback(limit, 1, pause=45_000, strike=1)])
    picture = (await knell(engine, "status", "--output", "json")).json
    (budget,) = picture["budgets"]
    assert budget["paused_until"] > picture["at"]
    assert (budget["factor"], budget["tokens"]) == (pytest.approx(0.7, abs=0.01), 0)
    table = (await knell(engine, "status")).out
    assert "Lane sim/acct/delete is paused by ops, since 20" in table
    assert "70%" in table


async def test_status_shows_what_was_learned_of_a_limit(engine: EngineUnderTest) -> None:
    engine.stop_clock()
    limit = Limit.bucket("deletes", 10, 10, learns=True)
    await engine.lay(event("a"), [thing("1")])
    ask = ReservationRequest("sim/acct/delete", 30, 30, 0, (Draw(limit),))
    for _ in range(60):
        engine.offset += timedelta(milliseconds=100)
        await engine.installation.budgets.reserve("sim/acct", 0.1, [ask])
    (budget,) = (await knell(engine, "status", "--output", "json")).json["budgets"]
    assert (budget["learned"], budget["refused"], budget["factor"]) == (1.25, None, 1)
    assert "125%" in (await knell(engine, "status")).out
    await engine.installation.budgets.correct("sim/acct", [LimitFeedback(limit, 1, pause=1000, strike=1)])
    (budget,) = (await knell(engine, "status", "--output", "json")).json["budgets"]
    assert (budget["learned"], budget["refused"]) == (1, 1.25)


async def test_an_empty_server_has_an_empty_status(server: TestServer) -> None:
    answer = await asyncio.to_thread(invoke, environment(server.settings()), "status")
    assert (answer.code, answer.err) == (0, "")
    assert "No lane has work in it." in answer.out


async def test_a_long_list_of_lanes_is_cut_and_says_so(embedded_server: TestServer) -> None:
    async with operated(embedded_server) as engine:
        await engine.lay(event("a"), [thing(str(number), f"sim/acct/op{number}") for number in range(250)])
        answer = await knell(engine, "status", "--lanes", "7")
        assert answer.out.count("sim/acct/op") == 7
        assert "and 243 more lanes" in answer.out
        assert len((await knell(engine, "status", "--output", "json")).json["lanes"]) == 250


def test_watch_prints_the_status_again_and_again_and_ends_with_ctrl_c(embedded_server: TestServer) -> None:
    process = start(environment(embedded_server.settings()), "status", "--watch", "--output", "json")
    try:
        assert process.stdout is not None
        times = [json.loads(process.stdout.readline())["at"] for _ in range(2)]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert times[0] < times[1]
    assert (process.returncode, err) == (0, "")


@pytest.mark.long
def test_watch_on_a_terminal_survives_a_restart_of_the_server() -> None:
    with LocalRedis() as server:
        terminal, theirs = pty.openpty()
        variables = {**environment(server.settings()), "COLUMNS": "200", "LINES": "40", "TERM": "xterm"}
        process = start(variables, "status", "--watch", output=theirs)
        os.close(theirs)
        try:
            read_until(terminal, "No lane has work in it.")
            server.kill()
            read_until(terminal, "This is from 20")
            server.start()
            read_until(terminal, "[H\x1b[1mredis://")
            process.send_signal(signal.SIGINT)
            code = process.wait(timeout=60)
            assert process.stderr is not None
            err = process.stderr.read()
            process.stderr.close()
        finally:
            process.kill()
            process.wait()
            os.close(terminal)
    assert (code, err) == (0, "")


def read_until(terminal: int, words: str, within: float = 60.0) -> None:
    """The screen from now on, until it has the words."""
    deadline, seen = time.monotonic() + within, ""
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"waited in vain for {words!r}; seen: {seen[-2000:]!r}"
        seen += os.read(terminal, 65536).decode(errors="replace")
