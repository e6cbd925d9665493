"""`knell held` lists everything that needs an operator, and replays or drops it."""

from datetime import datetime, timedelta

import pytest

from service.contract import Blocked, Hold, Refused
from service.engine.script_arguments import UnplannedEvent, event_fields
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider, event, thing
from tests.integration.command_line import embedded_engine, engine, knell, operated
from tests.redis_servers import TestServer

__all__ = ["embedded_engine", "engine"]


async def names(engine: EngineUnderTest, *words: str) -> list[str]:
    answer = await knell(engine, "held", "list", "--output", "json", *words)
    assert (answer.code, answer.err) == (0, "")
    return [view["name"] for view in answer.json["held"]]


async def hold_all_three(engine: EngineUnderTest) -> tuple[str, str, str]:
    """An event, a deletion and a job, held by a worker that has stopped."""
    provider = ScriptedProvider(plans={"odd": Hold("no such account")}, always=Refused("tagged with another owner"))
    running = await engine.start(provider)
    shard = engine.installation.shards[-1]
    entry = (await engine.client.xadd(shard.stem + "events", {"v": "x", "blob": b"\xff\x00", "n": "1"})).decode()
    await engine.publish(event("odd"), event("refused"))

    async def held() -> bool:
        return len(await engine.members("held")) == 3

    await engine.until("all three are held", held)
    await running.stop()
    return f"event:{entry}", f"deletion:{event('odd').deletion}", f"job:{event('refused').deletion}#1.0"


async def test_everything_held_is_listed_with_its_reason(engine: EngineUnderTest) -> None:
    unreadable, unplanned, refused = await hold_all_three(engine)
    answer = await knell(engine, "held", "list", "--output", "json")
    whys = {view["name"]: view["why"] for view in answer.json["held"]}
    assert "a field is not UTF-8 text" in whys.pop(unreadable)
    assert whys == {unplanned: "no such account", refused: "refused: tagged with another owner"}
    (kept,) = (view["fields"] for view in answer.json["held"] if view["name"] == unreadable)
    assert kept == {"v": "x", "blob": "\\xff\x00", "n": "1"}
    assert await names(engine, "--kind", "job") == [refused]
    assert await names(engine, "--kind", "deletion") == [unplanned]
    table = (await knell(engine, "held", "list")).out
    assert "no such account" in table
    assert "\x00" not in table


async def waits(engine: EngineUnderTest) -> tuple[str, str]:
    """A deletion and a job that only wait, and a job that is held; the worker has stopped."""
    provider = ScriptedProvider(
        plans={"early": Hold("too early: 2 Machines", again=True, after=timedelta(hours=1), waits=True)}
    )
    provider.answers["busy"].append(Blocked("its machine", timedelta(hours=1)))
    provider.answers["refused"].append(Refused("tagged with another owner"))
    running = await engine.start(provider)
    await engine.publish(event("early"), event("busy"), event("refused"))

    async def all_wait() -> bool:
        return len(await engine.members("waiting")) == 2 and len(await engine.members("held")) == 1

    await engine.until("two wait, one is held", all_wait)
    await running.stop()
    return f"deletion:{event('early').deletion}", f"job:{event('busy').deletion}#1.0"


async def test_what_waits_by_itself_is_listed_and_counted_apart(engine: EngineUnderTest) -> None:
    unplanned, busy = await waits(engine)
    assert await names(engine) == [f"job:{event('refused').deletion}#1.0"]
    assert set(await names(engine, "--waiting")) == {unplanned, busy}
    assert "2 more wait by themselves" in (await knell(engine, "held", "list")).out
    listed = (await knell(engine, "deletions", "list", "--state", "waiting", "--output", "json")).json["deletions"]
    assert [(one["id"], one["held_why"]) for one in listed] == [(event("early").deletion, "too early: 2 Machines")]
    totals = (await knell(engine, "status", "--output", "json")).json["totals"]
    assert (totals["waiting"], totals["waiting_deletions"], totals["waiting_jobs"]) == (2, 1, 1)
    assert (totals["held"], totals["held_jobs"]) == (1, 1)
    assert "2  (1 deletions, 1 jobs)" in (await knell(engine, "status")).out
    for shard in engine.installation.shards:
        await shard.refresh_stats()
    stats = await engine.stats()
    assert (stats["waiting"], stats["held"]) == (2, 1)


async def test_entries_that_only_wait_can_be_replayed_and_dropped(embedded_engine: EngineUnderTest) -> None:
    unplanned, busy = await waits(embedded_engine)
    assert (await knell(embedded_engine, "held", "replay", busy)).code == 0
    assert await names(embedded_engine, "--waiting") == [unplanned]
    assert (await knell(embedded_engine, "held", "drop", unplanned, "--yes")).code == 0
    assert await names(embedded_engine, "--waiting") == []
    assert await embedded_engine.state(event("early")) == "dropped"


async def test_a_replayed_event_is_on_the_stream_again_as_it_was(engine: EngineUnderTest) -> None:
    unreadable, _, _ = await hold_all_three(engine)
    answer = await knell(engine, "held", "replay", unreadable)
    assert (answer.code, "is on the stream again" in answer.out) == (0, True)
    stem = engine.installation.shards[-1].stem
    ((_, fields),) = await engine.client.xrange(stem + "events")
    assert fields == {b"v": b"x", b"blob": b"\xff\x00", b"n": b"1"}
    assert unreadable not in await names(engine)
    answer = await knell(engine, "held", "replay", unreadable)
    assert (answer.code, "is not held" in answer.err) == (1, True)


async def test_a_replayed_deletion_is_planned_by_a_worker_that_knows_its_collector(engine: EngineUnderTest) -> None:
    _, unplanned, _ = await hold_all_three(engine)
    assert (await knell(engine, "held", "replay", unplanned)).code == 0
    assert (await engine.deletion(event("odd")))["state"] == "published"
    await engine.start(ScriptedProvider())
    await engine.until_done(event("odd"))
    assert unplanned not in await names(engine)


async def test_a_replayed_job_is_due_at_once(engine: EngineUnderTest) -> None:
    _, _, refused = await hold_all_three(engine)
    answer = await knell(engine, "held", "replay", refused)
    assert (answer.code, "is due now" in answer.out) == (0, True)
    assert refused not in await names(engine)
    await engine.start(ScriptedProvider())
    await engine.until_done(event("refused"))


async def test_all_of_a_kind_or_all_at_once_are_replayed(embedded_engine: EngineUnderTest) -> None:
    _, unplanned, _ = await hold_all_three(embedded_engine)
    answer = await knell(embedded_engine, "held", "replay", "--all", "--kind", "deletion")
    assert (answer.code, "1 replayed, 0 not." in answer.out) == (0, True)
    assert unplanned not in await names(embedded_engine)
    assert len(await names(embedded_engine)) == 2
    answer = await knell(embedded_engine, "held", "replay", "--all")
    assert (answer.code, "2 replayed, 0 not." in answer.out) == (0, True)
    assert await names(embedded_engine) == []
    assert "Nothing is held." in (await knell(embedded_engine, "held", "list")).out


async def test_a_drop_is_asked_about_and_then_final(engine: EngineUnderTest) -> None:
    unreadable, unplanned, _ = await hold_all_three(engine)
    for name in (unreadable, unplanned):
        answer = await knell(engine, "held", "drop", name, answer="n\n")
        assert (answer.code, "Drop it?" in answer.out) == (1, True)
        assert name in await names(engine)
        answer = await knell(engine, "held", "drop", name, answer="y\n")
        assert (answer.code, "is dropped" in answer.out) == (0, True)
        assert name not in await names(engine)
    assert (await engine.deletion(event("odd")))["state"] == "dropped"
    assert await engine.entries() == []


@pytest.mark.parametrize(("word", "state"), [("drop", "dropped"), ("replay", "published")])
async def test_a_deletion_that_is_being_replanned_can_be_replayed_or_dropped(
    embedded_engine: EngineUnderTest, word: str, state: str
) -> None:
    _, unplanned, _ = await hold_all_three(embedded_engine)
    shard = embedded_engine.shard(event("odd"))
    event_again = list(event_fields(event("odd")))
    assert await shard.unhold(unplanned, replay=True, who="its own time", event=event_again) == "replayed"
    assert unplanned not in await names(embedded_engine)
    answer = await knell(embedded_engine, "held", word, unplanned, *(["--yes"] if word == "drop" else []))
    assert (answer.code, answer.err) == (0, "")
    assert await embedded_engine.state(event("odd")) == state
    # Once it is planned it is held no more.
    await embedded_engine.start(ScriptedProvider())
    if word == "replay":
        await embedded_engine.until_done(event("odd"))
    answer = await knell(embedded_engine, "held", "drop", unplanned, "--yes")
    assert (answer.code, "is not held" in answer.err) == (1, True)


async def test_dropping_a_held_job_is_abandoning_it_with_its_question(engine: EngineUnderTest) -> None:
    _, _, refused = await hold_all_three(engine)
    answer = await knell(engine, "held", "drop", refused, answer="n\n")
    assert (answer.code, "released without it" in answer.out) == (1, True)
    answer = await knell(engine, "held", "drop", refused, "--yes")
    assert (answer.code, "is abandoned" in answer.out) == (0, True)
    assert refused not in await names(engine)


async def test_an_event_name_that_two_shards_share_is_asked_for(embedded_server: TestServer) -> None:
    async with operated(embedded_server, shards=3) as engine:
        for number in (0, 2):
            shard = engine.installation.shards[number]
            await engine.client.xadd(shard.stem + "events", {"v": "x"}, id="5-5")
            await shard.hold([UnplannedEvent("5-5", "held", "unreadable", "", [])])
        answer = await knell(engine, "held", "replay", "event:5-5")
        assert (answer.code, "shards 0, 2 have a event:5-5; say which by --shard" in answer.err) == (2, True)
        assert (await knell(engine, "held", "drop", "event:5-5", "--yes", "--shard", "2")).code == 0
        assert (await knell(engine, "held", "replay", "event:5-5")).code == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["replay"], "give one address, or --all"),
        (["replay", "event:1-1", "--all"], "give one address, or --all"),
    ],
)
async def test_replay_takes_either_one_address_or_all(
    embedded_engine: EngineUnderTest, words: list[str], complaint: str
) -> None:
    answer = await knell(embedded_engine, "held", *words)
    assert (answer.code, complaint in answer.err) == (2, True)


@pytest.mark.parametrize(
    "address", ["1-1", "event:1-1", "thing:1", "thing/name-a", "deletion:abcd", "job:c1/things/a/1#1.0"]
)
async def test_an_entry_that_is_not_held_is_reported_as_such(embedded_engine: EngineUnderTest, address: str) -> None:
    await embedded_engine.lay(event("a"), [thing("1")])
    for word in ("replay", "drop"):
        answer = await knell(embedded_engine, "held", word, address)
        assert (answer.code, f"{address} is not held (any more)" in answer.err) == (1, True)


async def test_a_deletion_whose_planner_died_says_how_often_and_when_it_is_planned_again(
    embedded_engine: EngineUnderTest,
) -> None:
    one = event("a")
    why = "its planner died 3 times while it was planned alone"
    kept = UnplannedEvent(
        await embedded_engine.deliver(one), "held", why, one.deletion, event_fields(one), 3_600_000, exact=True
    )
    await embedded_engine.shard(one).hold([kept])
    assert "again in" in (await knell(embedded_engine, "held", "list", "--output", "wide")).out
    (view,) = (await knell(embedded_engine, "held", "list", "--output", "json")).json["held"]
    assert view["why"] == "its planner died 3 times while it was planned alone"
    waits = datetime.fromisoformat(view["again"]) - datetime.fromisoformat(view["since"])
    assert waits == timedelta(hours=1)


async def test_a_job_that_is_not_held_is_not_dropped_under_that_name(embedded_engine: EngineUnderTest) -> None:
    jobs = await embedded_engine.lay(event("a"), [thing("1")])
    answer = await knell(embedded_engine, "held", "drop", f"job:{jobs['1']}", "--yes")
    assert (answer.code, "is not held" in answer.err) == (1, True)
