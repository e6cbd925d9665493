"""Resources that an operator abandoned, when their deletion is planned anew: the next plan does not name them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.contract import Event, JobRecord, Target
from service.contract.kept import Abandoned
from service.contract.version import VERSION
from service.engine.script_arguments import event_fields
from tests.api_servers import TestApi
from tests.integration.judged_source import JudgedSource, judged_source
from tests.redis_servers import TestServer
from workers.judging.planner import not_abandoned


@pytest.fixture
async def judged(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[JudgedSource]:
    async with judged_source(api, embedded_server, tmp_path) as made:
        yield made


async def abandoned_and_lost(judged: JudgedSource) -> tuple[Event, str]:
    """The first of two resources is abandoned, and then the plan is lost. Nobody plans; answers the event and the
    abandoned job."""
    await judged.stop_lanes()
    one = await judged.going("w", 2)
    running = await judged.work()
    await judged.until_state(one, "running")
    job = await judged.abandon(one, "w-0")
    await running.stop()
    await judged.lose_plan(one)
    return one, job


@pytest.mark.invariant(10)
async def test_an_abandoned_resource_is_not_planned_again(judged: JudgedSource) -> None:
    one, _ = await abandoned_and_lost(judged)
    await judged.work()
    await judged.until_next_plan(one)
    assert {target for _, target in await judged.targets_of(one)} & {"w-0", "w-1"} == {"w-1"}
    await judged.free_lanes()
    await judged.until_done(one)
    assert judged.there("w", 0)
    assert not judged.there("w", 1)
    record = await judged.deletion(one)
    assert (record["abandoned"], judged.deletes) == ("1", 1)
    assert "1 left, whose jobs were abandoned" in record["policy"]


@pytest.mark.invariant(7)
@pytest.mark.invariant(10)
@pytest.mark.parametrize("trouble", ["the read fails", "a record can't be read"])
async def test_while_it_cant_be_told_what_was_abandoned_nothing_is_planned(judged: JudgedSource, trouble: str) -> None:
    one, job = await abandoned_and_lost(judged)
    key = f"{judged.shard(one).stem}abandoned:{one.deletion}"
    record = await judged.client.hget(key, job)
    await judged.client.delete(key)
    if trouble == "the read fails":
        await judged.client.set(key, "no hash")
    else:
        await judged.client.hset(key, job, "{")
    await judged.free_lanes()
    await judged.work()
    await judged.until_held(one, "planning failed" if trouble == "the read fails" else "can't be read")
    assert judged.deletes == 0
    await judged.client.delete(key)
    await judged.client.hset(key, job, record)
    await judged.shard(one).unhold(f"deletion:{one.deletion}", replay=True, who="somebody", event=event_fields(one))
    await judged.until_done(one)
    assert judged.there("w", 0)
    assert not judged.there("w", 1)


def target(incarnation: str = "", data: str = "here") -> Target:
    return Target(kind="balancer", id="b", lane="sim/acct/delete", data=data, incarnation=incarnation)


def given_up(incarnation: str = "", data: str = "here") -> Abandoned:
    record = JobRecord(
        v=VERSION, stage=0, lane="sim/acct/delete", kind="balancer", target="b", data=data, incarnation=incarnation
    )
    return Abandoned((record,))


@pytest.mark.invariant(10)
@pytest.mark.parametrize(
    ("targets", "abandoned", "planned"),
    [
        pytest.param([target()], given_up(), [], id="the same"),
        pytest.param([target("2")], given_up("2"), [], id="the same incarnation"),
        pytest.param([target("2")], given_up(), [], id="any incarnation was meant"),
        pytest.param([target("2")], given_up("1"), [target("2")], id="a later one of the name"),
        # The attempt reads which one it is.
        pytest.param([target()], given_up("1"), [target()], id="not known which one"),
        pytest.param([target(data="changed")], given_up(), [], id="its claim has changed"),
        pytest.param([target(), target(data="there")], given_up(), [target(data="there")], id="of two places"),
        pytest.param([target(data="a"), target(data="b")], given_up(), [], id="of two places, changed"),
        pytest.param([target()], Abandoned(), [target()], id="nothing"),
    ],
)
def test_what_is_planned_beside_an_abandoned_resource(
    targets: list[Target], abandoned: Abandoned, planned: list[Target]
) -> None:
    assert not_abandoned(targets, abandoned) == planned
