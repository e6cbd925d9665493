"""`knell deletions` lists deletions by state, and shows the history of one from its event to its end."""

from datetime import datetime, timedelta

from service.contract import Hold, Pending, Plan
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider, event, thing
from tests.integration.command_line import embedded_engine, engine, knell

__all__ = ["embedded_engine", "engine"]

moment = datetime.fromisoformat
"""Times as text do not sort: full seconds have no fraction."""


async def listed(engine: EngineUnderTest, *words: str) -> dict[str, str]:
    answer = await knell(engine, "deletions", "list", "--output", "json", *words)
    assert (answer.code, answer.err) == (0, "")
    return {view["uid"]: view["state"] for view in answer.json["deletions"]}


async def test_the_timeline_of_a_finished_deletion_has_every_step_in_order(engine: EngineUnderTest) -> None:
    going = event("a", namespace="shop")
    provider = ScriptedProvider(plans={"a": Plan([thing("first"), thing("second", stage=1)])})
    provider.answers["first"] = [Pending(timedelta(milliseconds=20), "accepted")]
    running = await engine.start(provider)
    await engine.publish(going)
    await engine.until_done(going)

    answer = await knell(engine, "deletions", "show", going.deletion, "--output", "json")
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

    table = (await knell(engine, "deletions", "show", going.deletion)).out
    assert "things shop/name-a" in table
    assert "stage 1 opened" in table
    assert "accepted" in table


async def test_the_timeline_has_only_entries_of_its_deletion(engine: EngineUnderTest) -> None:
    """Also for ids with a common prefix in one batch."""
    mine, alike = event("a", round=1), event("a", round=11)
    provider = ScriptedProvider()
    await engine.start(provider)
    await engine.publish(mine, alike)
    await engine.until_done(mine, alike)
    story = (await knell(engine, "deletions", "show", mine.deletion, "--output", "json")).json
    assert {one["job"].partition("#")[0] for one in story["timeline"] if one["job"]} == {mine.deletion}


async def test_deletions_are_listed_by_state(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider(plans={"odd": Hold("no such account")})
    provider.plans["slow"] = Plan([thing("slow", after=timedelta(hours=1))])
    running = await engine.start(provider)
    await engine.publish(event("done"), event("odd"), event("slow"))
    await engine.until_done(event("done"))

    async def judged() -> bool:
        states = [await engine.state(event("odd")), await engine.state(event("slow"))]
        return states == ["held", "running"]

    await engine.until("the others are planned and held", judged)
    await running.stop()
    await engine.publish(event("new"))

    assert await listed(engine) == {"odd": "held", "slow": "running", "new": "published"}
    assert await listed(engine, "--state", "done") == {"done": "done"}
    assert await listed(engine, "--state", "held") == {"odd": "held"}
    assert await listed(engine, "--state", "running") == {"slow": "running"}
    assert await listed(engine, "--state", "published") == {"new": "published"}
    assert await listed(engine, "--state", "releasing") == {}
    assert "no such account" in (await knell(engine, "deletions", "list")).out
    story = await knell(engine, "deletions", "show", event("odd").deletion)
    assert "held because" in story.out


async def test_lists_are_cut_at_the_limit_oldest_first(embedded_engine: EngineUnderTest) -> None:
    for number in range(5):
        await embedded_engine.publish(event(f"u{number}"))
    answer = await knell(embedded_engine, "deletions", "list", "--limit", "3", "--output", "json")
    assert ([view["uid"] for view in answer.json["deletions"]], answer.json["more"]) == (
        ["u0", "u1", "u2"],
        True,
    )


async def test_of_many_jobs_those_that_have_not_ended_come_first(embedded_engine: EngineUnderTest) -> None:
    going = event("a")
    jobs = await embedded_engine.lay(going, [thing(f"t{number}") for number in range(1200)])
    for number in range(1150):
        await embedded_engine.shard(going).abandon(jobs[f"t{number}"], "tests")

    answer = await knell(embedded_engine, "deletions", "show", going.deletion, "--output", "json", "--limit", "60")
    states = [job["state"] for job in answer.json["jobs"]]
    assert states == ["due"] * 50 + ["waiting"] + ["abandoned"] * 9
    assert answer.json["deletion"]["left"] == 51
    table = (await knell(embedded_engine, "deletions", "show", going.deletion, "--limit", "10")).out
    assert "and 1191 more jobs" in table
    assert "abandoned 1150 times in " in table
    table = (await knell(embedded_engine, "deletions", "show", going.deletion, "--limit", "10", "--output", "wide")).out
    assert table.count("abandoned") > 1000  # the timeline has each decision
    answer = await knell(embedded_engine, "deletions", "show", going.deletion, "--output", "json", "--limit", "0")
    assert len(answer.json["jobs"]) == 1201


async def test_a_long_audit_is_read_up_to_the_limit_and_the_truncation_is_shown(
    embedded_engine: EngineUnderTest,
) -> None:
    going = event("a")
    jobs = await embedded_engine.lay(going, [thing("1")])
    for _ in range(1600):
        await embedded_engine.client.xadd(
            embedded_engine.shard(going).stem + "audit", {"entry": "decision", "what": "noise", "id": "x"}
        )
    await embedded_engine.shard(going).retry(jobs["1"], "tests")

    answer = await knell(embedded_engine, "deletions", "show", going.deletion, "--scan", "1000")
    assert "The audit was read up to 20" in answer.out
    assert "retried" not in answer.out
    answer = await knell(embedded_engine, "deletions", "show", going.deletion)
    assert "The audit was read up to" not in answer.out
    assert "retried" in answer.out


async def test_a_jumping_clock_hides_nothing_of_the_audit(embedded_engine: EngineUnderTest) -> None:
    going = event("a")
    await embedded_engine.jump(timedelta(hours=-2))
    jobs = await embedded_engine.lay(going, [thing("1")])
    await embedded_engine.jump(timedelta(hours=5))
    await embedded_engine.shard(going).retry(jobs["1"], "tests")
    assert "retried" in (await knell(embedded_engine, "deletions", "show", going.deletion)).out


async def test_an_unknown_deletion_is_reported_as_unknown(embedded_engine: EngineUnderTest) -> None:
    answer = await knell(embedded_engine, "deletions", "show", "c1/things/nobody/1")
    assert (answer.code, "no deletion c1/things/nobody/1 is known" in answer.err) == (1, True)
