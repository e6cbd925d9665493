"""Lost replies: the reply to a call is lost after the server has executed it, for every call of the engine.

The caller sends it again, and the result must be the same as without the loss. A new Lua file without a case fails
here."""

import dataclasses
import time
from importlib.resources import files
from typing import NamedTuple

import msgspec
import pytest

from service.engine.budgets import Budgets
from service.engine.clients import RedisClients
from service.engine.keys import Keys
from service.engine.script_loading import Scripts, lua_text
from service.engine.shard import Shard
from service.settings import RedisSettings
from tests.dropping_proxy import Command, DroppingProxy, is_script
from tests.properties.clock import GIVEN_CLOCK, GivenClock, JumpingClock
from tests.properties.comparable_state import alike, in_order
from tests.properties.move_cases import ERRANDS, PLACE, CaseInstallation
from tests.properties.rig import RecordingCaller
from tests.properties.shard_state import read_keys
from tests.redis_servers import TestServer

SCRIPTS = files("service.engine") / "scripts"
MOVES = sorted(path.name.removesuffix(".lua") for path in SCRIPTS.iterdir() if not path.name.startswith("_"))


class RunResult(NamedTuple):
    """What a run came to: what was answered, what is in Redis then, and what was there before."""

    answer: str
    after: str
    before: str


async def run(
    settings: RedisSettings, move: str, begun: float, scripts: Scripts, proxy: DroppingProxy | None
) -> RunResult:
    """Everything up to the errand goes straight to the server, the errand itself through the proxy, if there is one."""
    clock, keys = GivenClock(begun, tick=1000), Keys(settings.prefix)
    straight = RedisClients(settings)
    reached = settings if proxy is None else _through(settings, proxy)
    last = RedisClients(reached)
    try:
        site = _site(straight, clock, keys, scripts)
        if move != "check_epoch":
            await site.shard.check_epoch("history", "")
        await ERRANDS[move].prepare(site)
        before = await _stored(site)
        errand = _site(last, clock, keys, scripts)
        errand.kept = site.kept
        if proxy is not None:
            proxy.drop(lambda command: _is(command, move, scripts))
        await ERRANDS[move].act(errand)
        answers = [msgspec.msgpack.decode(call.answer) for call in errand.caller.calls]
        after = await _stored(site)
        return RunResult(alike(answers), alike(after), alike(before))
    finally:
        await last.aclose()
        await straight.aclose()


def _site(connections: RedisClients, clock: JumpingClock, keys: Keys, scripts: Scripts) -> CaseInstallation:
    caller = RecordingCaller(connections.client, clock, scripts)
    return CaseInstallation(caller, Shard(caller, keys, 0), Budgets(caller, keys))


def _through(settings: RedisSettings, proxy: DroppingProxy) -> RedisSettings:
    return msgspec.structs.replace(settings, url=dataclasses.replace(settings.url, host="127.0.0.1", port=proxy.port))


async def _stored(site: CaseInstallation) -> dict[str, object]:
    client = site.caller.client
    shard = in_order(await read_keys(client, site.shard.stem))
    budget = in_order(await read_keys(client, site.shard.keys.budget(PLACE)))
    return {"shard": shard, "budget": budget}


def _is(command: Command, move: str, scripts: Scripts) -> bool:
    script = scripts[move]
    return is_script(command) and command[1].decode() in (script.sha, script.source)


async def both(server: TestServer, move: str, scripts: Scripts) -> tuple[RunResult, RunResult, DroppingProxy]:
    """The same errand undisturbed, and with its first answer lost."""
    begun = float(int(time.time()) * 1000)
    settings = server.settings(shards=1)
    undisturbed = await run(settings, move, begun, scripts, None)
    async with DroppingProxy(settings.url.host, settings.url.port) as proxy:
        disturbed = await run(server.settings(shards=1), move, begun, scripts, proxy)
    return undisturbed, disturbed, proxy


READS = {"read_deletions"}


@pytest.mark.parametrize("move", MOVES)
async def test_a_lost_answer_changes_nothing(embedded_server: TestServer, move: str) -> None:
    assert move in ERRANDS, f"{move}.lua is new: give it an errand in tests/properties/move_cases.py"
    # With the time that they are given both runs see the same, to the millisecond.
    assert lua_text("_move") != GIVEN_CLOCK
    undisturbed, disturbed, proxy = await both(embedded_server, move, Scripts(changed={"_move": GIVEN_CLOCK}))

    changed = undisturbed.after != undisturbed.before
    assert changed is (move not in READS), "an errand that does nothing shows nothing, and a read changes nothing"
    assert len(proxy.dropped) == 1
    requests = [command[6] for command in proxy.seen if is_script(command)]
    assert requests.count(proxy.dropped[0][6]) >= 2, "it was not sent again under its own name"
    assert disturbed.before == undisturbed.before
    assert disturbed.answer == undisturbed.answer
    assert disturbed.after == undisturbed.after


FORGETFUL = GIVEN_CLOCK.replace("redis.call('GET', memory)", "false")


@pytest.mark.parametrize("move", ["publish", "plan", "take", "settle", "append", "unhold", "reserve", "return_tokens"])
async def test_a_move_that_forgets_its_answer_is_noticed(embedded_server: TestServer, move: str) -> None:
    assert FORGETFUL != GIVEN_CLOCK
    undisturbed, disturbed, proxy = await both(embedded_server, move, Scripts(changed={"_move": FORGETFUL}))

    assert len(proxy.dropped) == 1
    assert (disturbed.answer, disturbed.after) != (undisturbed.answer, undisturbed.after)
