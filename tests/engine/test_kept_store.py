"""Keep decisions: one per object under a name; and the jobs of a deletion whose resources stay."""

from datetime import timedelta

import pytest

from service.contract import VERSION, JobRecord, Left, Pending, Undecodable
from service.contract.kept import NOTHING_ABANDONED, Abandoned, KeepDecision
from service.engine.kept_store import KeptStore
from service.engine.outcomes import deletion_outcomes
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider, event, thing

GRACE = timedelta(minutes=1)
PLACE = "aws/111122223333/eu-west-1"


def decision(uid: str, why: str = "retain: so", name: str = "prod") -> KeepDecision:
    return KeepDecision(
        v=VERSION, place=PLACE, name=name, object=f"awsclusters tenant/{name}", uid=uid, source="clusters", why=why,
        at=1, remark="two\nlines",
    )  # fmt: skip


@pytest.mark.every_server
async def test_each_object_has_one_word_under_a_name(engine: EngineUnderTest) -> None:
    memory = KeptStore(engine.install())
    for one in (decision("a"), decision("b"), decision("a", "left: since"), decision("a", name="prod-2")):
        await memory.save(one)
    assert await memory.decisions(PLACE, "prod") == [decision("b"), decision("a", "left: since")]
    assert await memory.decisions(PLACE, "pro") == []
    assert {name async for name, _ in memory.all_decisions()} == {f"{PLACE}/prod", f"{PLACE}/prod-2"}
    assert await memory.remove(f"{PLACE}/prod", "b")
    assert not await memory.remove(f"{PLACE}/prod", "b")
    assert await memory.remove(f"{PLACE}/prod", "a")
    assert [name async for name, _ in memory.all_decisions()] == [f"{PLACE}/prod-2"]


async def test_what_can_not_be_read_is_not_taken_for_nothing(engine: EngineUnderTest) -> None:
    memory = KeptStore(engine.install())
    await engine.client.hset(memory.key, f"{PLACE}/prod", "a {}")
    with pytest.raises(Undecodable):
        await memory.decisions(PLACE, "prod")
    assert [found async for found in memory.all_decisions()] == [(f"{PLACE}/prod", None)]


@pytest.mark.every_server
async def test_an_abandoned_job_stays_abandoned_when_its_deletion_is_planned_anew(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = provider.has("a", [thing("left"), thing("gone")])
    jobs = await engine.lay(one, [thing("left"), thing("gone")])
    memory = KeptStore(engine.installation)
    assert await memory.abandoned(one.deletion) == NOTHING_ABANDONED
    assert await engine.shard(one).abandon(jobs["left"], "ann") == "abandoned"
    await engine.client.delete(f"{engine.shard(one).stem}job:{one.deletion}#1")
    await engine.jump(GRACE)
    await engine.tidy()
    assert (await engine.deletion(one))["abandoned"] == "1"
    abandoned = await memory.abandoned(one.deletion)
    assert abandoned.covers("thing", "left")
    assert not abandoned.covers("thing", "gone")
    assert await memory.abandoned_before(one.deletion, 2) == abandoned
    assert await memory.abandoned_before(one.deletion, 1) == NOTHING_ABANDONED
    (ending,) = await deletion_outcomes(engine.installation, [one.deletion])
    assert ending.kept.startswith("left: ")


async def test_an_abandoned_job_that_can_not_be_read_may_have_been_any(engine: EngineUnderTest) -> None:
    one = event("a")
    jobs = await engine.lay(one, [thing("left")])
    await engine.client.hset(f"{engine.shard(one).stem}job:{one.deletion}#1", "0", "no record")
    assert await engine.shard(one).abandon(jobs["left"], "ann") == "abandoned"
    abandoned = await KeptStore(engine.installation).abandoned(one.deletion)
    assert (abandoned.jobs, abandoned.unknown) == ((), 1)


async def test_what_was_abandoned_goes_with_the_record_of_its_deletion(engine: EngineUnderTest) -> None:
    one = event("a")
    jobs = await engine.lay(one, [thing("left")])
    assert await engine.shard(one).abandon(jobs["left"], "ann") == "abandoned"
    await engine.start(ScriptedProvider())
    await engine.until_done(one)
    assert await KeptStore(engine.installation).abandoned(one.deletion) != NOTHING_ABANDONED
    now = timedelta()
    await engine.shard(one).expire(finished=now, audit=now, audit_entries=100, lanes=now, most=100)
    assert await KeptStore(engine.installation).abandoned(one.deletion) == NOTHING_ABANDONED


async def test_what_was_given_up_stays_as_what_was_abandoned(engine: EngineUnderTest) -> None:
    one, provider = event("a"), ScriptedProvider()
    provider.has("a", [thing("left"), thing("gone"), thing("tried", strategy="best-effort")])
    provider.answers["left"] = [Left("kept by then")]
    provider.answers["tried"] = [Pending(timedelta(0))] * 10_000
    engine.change("retry", best_effort_deadline=timedelta(milliseconds=100))
    await engine.publish(one)
    await engine.start(provider)
    await engine.until_done(one)
    kept = await KeptStore(engine.installation).given_up(one.deletion)
    assert sorted(job.target for job in kept.jobs) == ["left", "tried"]
    assert kept.covers("thing", "left")
    assert not kept.covers("thing", "gone")


def test_an_incarnation_is_covered_by_itself_and_by_a_job_without_one() -> None:
    named = JobRecord(v=VERSION, stage=0, lane="", kind="thing", target="x", incarnation="1")
    unnamed = JobRecord(v=VERSION, stage=0, lane="", kind="thing", target="y")
    kept = Abandoned((named, unnamed))
    assert kept.covers("thing", "x")
    assert kept.covers("thing", "x", "1")
    assert not kept.covers("thing", "x", "2")
    assert kept.covers("thing", "y", "2")
