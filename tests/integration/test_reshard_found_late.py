"""Resharding deletions with targets that were found late: none is lost, and none is removed twice."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from service.engine.epoch import EpochTracker
from service.engine.reshard.reshard import Reshard
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider
from tests.integration.command_line import operated
from tests.integration.test_reshard import as_told, found_late, give_back, half_found, install, look, removed_late
from tests.redis_servers import TestServer

NUMBERS = range(4)


@pytest.fixture
async def engine(server: TestServer) -> AsyncIterator[EngineUnderTest]:
    async with operated(server, shards=1) as made:
        yield made


async def test_what_was_found_late_is_removed_once_after_a_move(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    whole = [await found_late(engine, provider, f"whole-{n}") for n in NUMBERS]
    half = [await half_found(engine, provider, f"half-{n}") for n in NUMBERS]
    await engine.jump(timedelta(minutes=5))
    await give_back(engine)
    before = await look(engine, 1)
    assert len(before.targets) == len(whole + half)
    for here, there in ((1, 4), (4, 3)):
        await Reshard(await install(engine, here), there).run("test")
        assert as_told(await look(engine, there)) == as_told(before)

    engine.change("redis", shards=3)
    engine.installation = await install(engine, 3)
    await EpochTracker(engine.installation.shards).check()
    await engine.start(provider)
    await engine.until_done(*whole, *half)
    for n in NUMBERS:
        assert sorted(removed_late(provider, f"whole-{n}")) == [f"whole-{n}-late-{late}" for late in range(5)]
        assert sorted(removed_late(provider, f"half-{n}")) == [f"half-{n}-late-{late}" for late in (1, 2, 3, 5)]
    # Those of the second stage come after those of the first one.
    order = removed_late(provider, "whole-0")
    assert set(order[:3]) == {f"whole-0-late-{late}" for late in range(3)}
    assert provider.called.index("whole-0-look") > provider.called.index(order[-1])
    assert provider.called.index("half-0-look") > provider.called.index(removed_late(provider, "half-0")[-1])
