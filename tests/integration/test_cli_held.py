"""`knell held` shows everything that waits for a person, and carries out his word on it."""

from datetime import datetime, timedelta

import pytest

from service.contract import Blocked, Hold, Refused
from service.engine.rows import Kept, flat
from tests.engine.outside import Outside, event, thing
from tests.engine.world import World
from tests.integration.operating import knell, operated, small, world
from tests.servers import TestServer

__all__ = ["small", "world"]


async def names(world: World, *words: str) -> list[str]:
    answer = await knell(world, "held", "list", "--output", "json", *words)
    assert (answer.code, answer.err) == (0, "")
    return [view["name"] for view in answer.json["held"]]


async def hold_all_three(world: World) -> tuple[str, str, str]:
    """An event, a deletion and a job, held by a worker that has then gone."""
    outside = Outside(plans={"odd": Hold("no such account")}, always=Refused("tagged with another owner"))
    running = await world.start(outside)
    shard = world.installation.shards[-1]
    entry = (await world.client.xadd(shard.stem + "events", {"v": "x", "blob": b"\xff\x00", "n": "1"})).decode()
    await world.publish(event("odd"), event("refused"))

    async def held() -> bool:
        return len(await world.members("held")) == 3

    await world.until("all three are held", held)
    await running.stop()
    return f"event:{entry}", f"deletion:{event('odd').deletion}", f"job:{event('refused').deletion}#1.0"


async def test_everything_held_is_listed_with_its_reason(world: World) -> None:
    unreadable, unplanned, refused = await hold_all_three(world)
    answer = await knell(world, "held", "list", "--output", "json")
    whys = {view["name"]: view["why"] for view in answer.json["held"]}
    assert "a field is not UTF-8 text" in whys.pop(unreadable)
    assert whys == {unplanned: "no such account", refused: "refused: tagged with another owner"}
    (kept,) = (view["fields"] for view in answer.json["held"] if view["name"] == unreadable)
    assert kept == {"v": "x", "blob": "\\xff\x00", "n": "1"}
    assert await names(world, "--kind", "job") == [refused]
    assert await names(world, "--kind", "deletion") == [unplanned]
    table = (await knell(world, "held", "list")).out
    assert "no such account" in table
    assert "\x00" not in table


async def waits(world: World) -> tuple[str, str]:
    """A deletion and a job that wait by themselves, beside a job that is held; the worker has gone."""
    outside = Outside(plans={"early": Hold("too early: 2 Machines", again=True, after=timedelta(hours=1), waits=True)})
    outside.answers["busy"].append(Blocked("its machine", timedelta(hours=1)))
    outside.answers["refused"].append(Refused("tagged with another owner"))
    running = await world.start(outside)
    await world.publish(event("early"), event("busy"), event("refused"))

    async def all_wait() -> bool:
        return len(await world.members("waiting")) == 2 and len(await world.members("held")) == 1

    await world.until("two wait, one is held", all_wait)
    await running.stop()
    return f"deletion:{event('early').deletion}", f"job:{event('busy').deletion}#1.0"


async def test_what_waits_by_itself_is_listed_and_counted_apart(world: World) -> None:
    unplanned, busy = await waits(world)
    assert await names(world) == [f"job:{event('refused').deletion}#1.0"]
    assert set(await names(world, "--waiting")) == {unplanned, busy}
    assert "2 more wait by themselves" in (await knell(world, "held", "list")).out
    listed = (await knell(world, "deletions", "list", "--state", "waiting", "--output", "json")).json["deletions"]
    assert [(one["id"], one["held_why"]) for one in listed] == [(event("early").deletion, "too early: 2 Machines")]
    totals = (await knell(world, "status", "--output", "json")).json["totals"]
    assert (totals["waiting"], totals["waiting_deletions"], totals["waiting_jobs"]) == (2, 1, 1)
    assert (totals["held"], totals["held_jobs"]) == (1, 1)
    assert "2  (1 deletions, 1 jobs)" in (await knell(world, "status")).out
    for shard in world.installation.shards:
        await shard.survey()
    stats = await world.stats()
    assert (stats["waiting"], stats["held"]) == (2, 1)


async def test_a_person_may_have_his_word_on_what_waits_by_itself(small: World) -> None:
    unplanned, busy = await waits(small)
    assert (await knell(small, "held", "replay", busy)).code == 0
    assert await names(small, "--waiting") == [unplanned]
    assert (await knell(small, "held", "drop", unplanned, "--yes")).code == 0
    assert await names(small, "--waiting") == []
    assert await small.state(event("early")) == "dropped"


async def test_a_replayed_event_is_on_the_stream_again_as_it_was(world: World) -> None:
    unreadable, _, _ = await hold_all_three(world)
    answer = await knell(world, "held", "replay", unreadable)
    assert (answer.code, "is on the stream again" in answer.out) == (0, True)
    stem = world.installation.shards[-1].stem
    ((_, fields),) = await world.client.xrange(stem + "events")
    assert fields == {b"v": b"x", b"blob": b"\xff\x00", b"n": b"1"}
    assert unreadable not in await names(world)
    answer = await knell(world, "held", "replay", unreadable)
    assert (answer.code, "is not held" in answer.err) == (1, True)


async def test_a_replayed_deletion_is_planned_by_who_now_knows_how(world: World) -> None:
    _, unplanned, _ = await hold_all_three(world)
    assert (await knell(world, "held", "replay", unplanned)).code == 0
    assert (await world.deletion(event("odd")))["state"] == "published"
    await world.start(Outside())
    await world.until_done(event("odd"))
    assert unplanned not in await names(world)


async def test_a_replayed_job_is_due_at_once(world: World) -> None:
    _, _, refused = await hold_all_three(world)
    answer = await knell(world, "held", "replay", refused)
    assert (answer.code, "is due now" in answer.out) == (0, True)
    assert refused not in await names(world)
    await world.start(Outside())
    await world.until_done(event("refused"))


async def test_all_of_a_kind_or_all_at_once_are_replayed(small: World) -> None:
    _, unplanned, _ = await hold_all_three(small)
    answer = await knell(small, "held", "replay", "--all", "--kind", "deletion")
    assert (answer.code, "1 replayed, 0 not." in answer.out) == (0, True)
    assert unplanned not in await names(small)
    assert len(await names(small)) == 2
    answer = await knell(small, "held", "replay", "--all")
    assert (answer.code, "2 replayed, 0 not." in answer.out) == (0, True)
    assert await names(small) == []
    assert "Nothing is held." in (await knell(small, "held", "list")).out


async def test_a_drop_is_asked_about_and_then_final(world: World) -> None:
    unreadable, unplanned, _ = await hold_all_three(world)
    for name in (unreadable, unplanned):
        answer = await knell(world, "held", "drop", name, answer="n\n")
        assert (answer.code, "Drop it?" in answer.out) == (1, True)
        assert name in await names(world)
        answer = await knell(world, "held", "drop", name, answer="y\n")
        assert (answer.code, "is dropped" in answer.out) == (0, True)
        assert name not in await names(world)
    assert (await world.deletion(event("odd")))["state"] == "dropped"
    assert await world.entries() == []


@pytest.mark.parametrize(("word", "state"), [("drop", "dropped"), ("replay", "published")])
async def test_a_word_on_a_deletion_that_is_just_planned_again_counts(small: World, word: str, state: str) -> None:
    _, unplanned, _ = await hold_all_three(small)
    shard = small.shard(event("odd"))
    event_again = list(flat(event("odd")))
    assert await shard.unhold(unplanned, replay=True, who="its own time", event=event_again) == "replayed"
    assert unplanned not in await names(small)
    answer = await knell(small, "held", word, unplanned, *(["--yes"] if word == "drop" else []))
    assert (answer.code, answer.err) == (0, "")
    assert await small.state(event("odd")) == state
    # Once it is planned it is held no more.
    await small.start(Outside())
    if word == "replay":
        await small.until_done(event("odd"))
    answer = await knell(small, "held", "drop", unplanned, "--yes")
    assert (answer.code, "is not held" in answer.err) == (1, True)


async def test_dropping_a_held_job_is_abandoning_it_with_its_question(world: World) -> None:
    _, _, refused = await hold_all_three(world)
    answer = await knell(world, "held", "drop", refused, answer="n\n")
    assert (answer.code, "released without it" in answer.out) == (1, True)
    answer = await knell(world, "held", "drop", refused, "--yes")
    assert (answer.code, "is abandoned" in answer.out) == (0, True)
    assert refused not in await names(world)


async def test_an_event_name_that_two_shards_share_is_asked_for(embedded_server: TestServer) -> None:
    async with operated(embedded_server, shards=3) as world:
        for number in (0, 2):
            shard = world.installation.shards[number]
            await world.client.xadd(shard.stem + "events", {"v": "x"}, id="5-5")
            await shard.hold([Kept("5-5", "held", "unreadable", "", [])])
        answer = await knell(world, "held", "replay", "event:5-5")
        assert (answer.code, "shards 0, 2 have a event:5-5; say which by --shard" in answer.err) == (2, True)
        assert (await knell(world, "held", "drop", "event:5-5", "--yes", "--shard", "2")).code == 0
        assert (await knell(world, "held", "replay", "event:5-5")).code == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["replay"], "give one address, or --all"),
        (["replay", "event:1-1", "--all"], "give one address, or --all"),
    ],
)
async def test_what_can_not_be_meant_is_refused(small: World, words: list[str], complaint: str) -> None:
    answer = await knell(small, "held", *words)
    assert (answer.code, complaint in answer.err) == (2, True)


@pytest.mark.parametrize(
    "address", ["1-1", "event:1-1", "thing:1", "thing/name-a", "deletion:abcd", "job:c1/things/a/1#1.0"]
)
async def test_what_is_not_held_is_said_plainly(small: World, address: str) -> None:
    await small.lay(event("a"), [thing("1")])
    for word in ("replay", "drop"):
        answer = await knell(small, "held", word, address)
        assert (answer.code, f"{address} is not held (any more)" in answer.err) == (1, True)


async def test_a_deletion_whose_planner_died_says_how_often_and_when_it_is_planned_again(small: World) -> None:
    one = event("a")
    kept = Kept(await small.deliver(one), "held", "its planner died 3 times while it was planned alone", one.deletion,
                flat(one), 3_600_000, exact=True)  # fmt: skip
    await small.shard(one).hold([kept])
    assert "again in" in (await knell(small, "held", "list", "--output", "wide")).out
    (view,) = (await knell(small, "held", "list", "--output", "json")).json["held"]
    assert view["why"] == "its planner died 3 times while it was planned alone"
    waits = datetime.fromisoformat(view["again"]) - datetime.fromisoformat(view["since"])
    assert waits == timedelta(hours=1)


async def test_a_job_that_is_not_held_is_not_dropped_under_that_name(small: World) -> None:
    jobs = await small.lay(event("a"), [thing("1")])
    answer = await knell(small, "held", "drop", f"job:{jobs['1']}", "--yes")
    assert (answer.code, "is not held" in answer.err) == (1, True)
