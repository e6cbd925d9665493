"""`knell deletions` tells what became of each, and the whole story of one from its event to its end."""

from datetime import datetime, timedelta

from service.contract import Hold, Pending, Plan
from tests.engine.outside import Outside, event, thing
from tests.engine.world import World
from tests.integration.operating import knell, small, world

__all__ = ["small", "world"]

moment = datetime.fromisoformat
"""Times as text do not sort: full seconds have no fraction."""


async def listed(world: World, *words: str) -> dict[str, str]:
    answer = await knell(world, "deletions", "list", "--output", "json", *words)
    assert (answer.code, answer.err) == (0, "")
    return {view["uid"]: view["state"] for view in answer.json["deletions"]}


async def test_the_story_of_a_finished_deletion_has_every_step_in_order(world: World) -> None:
    going = event("a", namespace="shop")
    outside = Outside(plans={"a": Plan([thing("first"), thing("second", stage=1)])})
    outside.answers["first"] = [Pending(timedelta(milliseconds=20), "accepted")]
    running = await world.start(outside)
    await world.publish(going)
    await world.until_done(going)

    answer = await knell(world, "deletions", "show", going.deletion, "--output", "json")
    story = answer.json
    assert (answer.code, answer.err) == (0, "")
    assert story["deletion"]["state"] == "done"
    times = [moment(story["deletion"][name]) for name in ("published_at", "planned_at", "done_at")]
    assert times == sorted(times)
    assert [(stage["chain"], stage["left"]) for stage in story["stages"]] == [
        ("main", 0),
        ("main", 0),
        ("release", 0),
    ]
    for earlier, later in zip(story["stages"], story["stages"][1:], strict=False):
        assert moment(earlier["opened_at"]) <= moment(earlier["closed_at"]) <= moment(later["opened_at"])
    assert {job["target"]: job["state"] for job in story["jobs"]} == {
        "first": "gone", "second": "gone", going.deletion: "gone",
    }  # fmt: skip
    told = [(one["what"], one["job"].rpartition(".")[2]) for one in story["timeline"]]
    for step in (
        ("taken", "0"),
        ("check called", "0"),
        ("gone called", "0"),
        ("taken", "1"),
        ("gone called", "2"),
    ):
        assert step in told
    assert told.index(("check called", "0")) < told.index(("gone called", "0")) < told.index(("taken", "1"))
    assert {one["who"] for one in story["timeline"] if one["what"] == "taken"} == {running.name}
    moments = [moment(one["at"]) for one in story["timeline"]]
    assert moments == sorted(moments)

    table = (await knell(world, "deletions", "show", going.deletion)).out
    assert "things shop/name-a" in table
    assert "stage 1 opened" in table
    assert "accepted" in table


async def test_the_story_holds_only_what_belongs_to_the_deletion(world: World) -> None:
    """Ids that begin alike, in one batch, are not taken for each other."""
    mine, alike = event("a", round=1), event("a", round=11)
    outside = Outside()
    await world.start(outside)
    await world.publish(mine, alike)
    await world.until_done(mine, alike)
    story = (await knell(world, "deletions", "show", mine.deletion, "--output", "json")).json
    assert {one["job"].partition("#")[0] for one in story["timeline"] if one["job"]} == {mine.deletion}


async def test_deletions_are_listed_by_state(world: World) -> None:
    outside = Outside(plans={"odd": Hold("no such account")})
    outside.plans["slow"] = Plan([thing("slow", after=timedelta(hours=1))])
    running = await world.start(outside)
    await world.publish(event("done"), event("odd"), event("slow"))
    await world.until_done(event("done"))

    async def judged() -> bool:
        states = [await world.state(event("odd")), await world.state(event("slow"))]
        return states == ["held", "running"]

    await world.until("the others are planned and held", judged)
    await running.stop()
    await world.publish(event("new"))

    assert await listed(world) == {"odd": "held", "slow": "running", "new": "published"}
    assert await listed(world, "--state", "done") == {"done": "done"}
    assert await listed(world, "--state", "held") == {"odd": "held"}
    assert await listed(world, "--state", "running") == {"slow": "running"}
    assert await listed(world, "--state", "published") == {"new": "published"}
    assert await listed(world, "--state", "releasing") == {}
    assert "no such account" in (await knell(world, "deletions", "list")).out
    story = await knell(world, "deletions", "show", event("odd").deletion)
    assert "held because" in story.out


async def test_lists_are_cut_at_the_limit_oldest_first(small: World) -> None:
    for number in range(5):
        await small.publish(event(f"u{number}"))
    answer = await knell(small, "deletions", "list", "--limit", "3", "--output", "json")
    assert ([view["uid"] for view in answer.json["deletions"]], answer.json["more"]) == (
        ["u0", "u1", "u2"],
        True,
    )


async def test_of_many_jobs_those_that_have_not_ended_come_first(small: World) -> None:
    going = event("a")
    jobs = await small.lay(going, [thing(f"t{number}") for number in range(1200)])
    for number in range(1150):
        await small.shard(going).abandon(jobs[f"t{number}"], "tests")

    answer = await knell(small, "deletions", "show", going.deletion, "--output", "json", "--limit", "60")
    states = [job["state"] for job in answer.json["jobs"]]
    assert states == ["due"] * 50 + ["waiting"] + ["abandoned"] * 9
    assert answer.json["deletion"]["left"] == 51
    table = (await knell(small, "deletions", "show", going.deletion, "--limit", "10")).out
    assert "and 1191 more jobs" in table
    assert "abandoned 1150 times in " in table
    table = (await knell(small, "deletions", "show", going.deletion, "--limit", "10", "--output", "wide")).out
    assert table.count("abandoned") > 1000  # the timeline has each decision
    answer = await knell(small, "deletions", "show", going.deletion, "--output", "json", "--limit", "0")
    assert len(answer.json["jobs"]) == 1201


async def test_a_long_audit_is_read_in_bounds_and_the_cut_is_said(small: World) -> None:
    going = event("a")
    jobs = await small.lay(going, [thing("1")])
    for _ in range(1600):
        await small.client.xadd(small.shard(going).stem + "audit", {"entry": "decision", "what": "noise", "id": "x"})
    await small.shard(going).retry(jobs["1"], "tests")

    answer = await knell(small, "deletions", "show", going.deletion, "--scan", "1000")
    assert "The audit was read up to 20" in answer.out
    assert "retried" not in answer.out
    answer = await knell(small, "deletions", "show", going.deletion)
    assert "The audit was read up to" not in answer.out
    assert "retried" in answer.out


async def test_a_jumping_clock_hides_nothing_of_the_audit(small: World) -> None:
    going = event("a")
    await small.jump(timedelta(hours=-2))
    jobs = await small.lay(going, [thing("1")])
    await small.jump(timedelta(hours=5))
    await small.shard(going).retry(jobs["1"], "tests")
    assert "retried" in (await knell(small, "deletions", "show", going.deletion)).out


async def test_an_unknown_deletion_is_said_to_be_unknown(small: World) -> None:
    answer = await knell(small, "deletions", "show", "c1/things/nobody/1")
    assert (answer.code, "no deletion c1/things/nobody/1 is known" in answer.err) == (1, True)
