"""Addresses of deletions, jobs and held entries on the command line: kind and name, ids, and prefixes of ids."""

import pytest

from service.contract import Hold, Pending, Plan, Refused
from service.contract.kept import KeepDecision
from service.contract.version import VERSION
from service.engine.kept_store import KeptStore
from service.engine.views.search import DeletionQuery, find_deletions
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import PlanAnswer, ScriptedProvider, event, thing
from tests.integration.command_line import CommandResult, embedded_engine, engine, knell

__all__ = ["embedded_engine", "engine"]

WIDGETS = "widgets.example.org"
UIDS = (
    "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "7c9e6679-aaaa-40de-944b-e07fc1f90ae7",
    "0f8fad5b-d9cb-469f-a165-708677289",
)
BLUE = event(UIDS[0], resource=WIDGETS, name="blue", namespace="team-a")
OTHER_BLUE = event(UIDS[1], resource=WIDGETS, name="blue", namespace="team-b")
RED = event(UIDS[2], resource=WIDGETS, name="red", namespace="team-a")


async def shown(engine: EngineUnderTest, *words: str) -> str:
    """The id of the deletion that is found."""
    answer = await knell(engine, "deletions", "show", *words, "--output", "json")
    assert (answer.code, answer.err) == (0, "")
    return str(answer.json["deletion"]["id"])


def offered(answer: CommandResult) -> list[list[str]]:
    """The addresses that the error about an ambiguous address lists."""
    assert (answer.code, answer.out) == (2, "")
    assert "type one of these:" in answer.err
    assert all(len(line) <= 80 for line in answer.err.splitlines())
    return [line.split("  ")[1].split() for line in answer.err.splitlines() if line.startswith("  ")]


# ---- deletions


@pytest.mark.parametrize("kind", ["widget", "Widget", "widgets", "widgets.example.org", "widget.example.org"])
async def test_a_deletion_is_found_by_its_object_in_every_state(engine: EngineUnderTest, kind: str) -> None:
    provider = ScriptedProvider(plans={RED.uid: Hold("no such account")})
    running = await engine.start(provider)
    await engine.publish(BLUE, RED)
    await engine.until_done(BLUE)

    async def held() -> bool:
        return await engine.state(RED) == "held"

    await engine.until("the other one is held", held)
    await running.stop()
    late = event("late", resource=WIDGETS, name="late", namespace="team-a")
    await engine.publish(late)
    for one in (BLUE, RED, late):
        assert await shown(engine, f"{kind}/{one.name}") == one.deletion
        assert await shown(engine, f"{kind}/{one.name}", "-n", "team-a") == one.deletion
        answer = await knell(engine, "deletions", "show", f"{kind}/{one.name}", "-n", "team-c")
        assert (answer.code, f"no deletion of {kind}/{one.name} in namespace team-c is known" in answer.err) == (
            1,
            True,
        )


async def test_a_unique_prefix_of_a_uid_is_enough(engine: EngineUnderTest) -> None:
    await engine.publish(BLUE, RED, event("a"), event("ab"))
    for word in (RED.uid, RED.uid[:8], RED.uid[:4], RED.deletion):
        assert await shown(engine, word) == RED.deletion
    # An exact uid may be short; a prefix has at least four characters.
    assert await shown(engine, "a") == event("a").deletion
    for word in (RED.uid[:3], "0f8fXXXX", "*", "[0-9]*", "0f8?"):
        answer = await knell(engine, "deletions", "show", word)
        assert (answer.code, f"no deletion {word} is known" in answer.err) == (1, True)


async def test_an_ambiguous_address_lists_an_unambiguous_address_of_each_match(engine: EngineUnderTest) -> None:
    await engine.publish(BLUE, OTHER_BLUE, RED)
    for word in ("widget/blue", "7c9e6679"):
        ways = offered(await knell(engine, "deletions", "show", word))
        assert {await shown(engine, *way) for way in ways} == {BLUE.deletion, OTHER_BLUE.deletion}
    assert ["widget/blue", "-n", "team-a"] in offered(await knell(engine, "deletions", "show", "widget/blue"))


async def test_objects_of_one_name_in_two_clusters_or_groups_are_distinguished(
    embedded_engine: EngineUnderTest,
) -> None:
    there = event("1" * 20, resource=WIDGETS, name="blue", namespace="team-a", cluster="c2")
    foreign = event("2" * 20, resource="widgets.other.org", name="blue", namespace="team-a")
    await embedded_engine.publish(BLUE, there, foreign)
    ways = offered(await knell(embedded_engine, "deletions", "show", "widget/blue", "-n", "team-a"))
    assert {await shown(embedded_engine, *way) for way in ways} == {BLUE.deletion, there.deletion, foreign.deletion}
    assert await shown(embedded_engine, "widget/blue", "--cluster", "c2") == there.deletion
    assert await shown(embedded_engine, "widgets.other.org/blue") == foreign.deletion
    # The name of a cluster means the uid that was recorded.
    await embedded_engine.client.hset(embedded_engine.installation.keys.of(0, "clusters"), "second", "c2")
    assert await shown(embedded_engine, "widget/blue", "--cluster", "second") == there.deletion


async def test_a_deletion_under_way_comes_before_those_that_have_ended(embedded_engine: EngineUnderTest) -> None:
    running = await embedded_engine.start(ScriptedProvider())
    again = event("9" * 20, resource=WIDGETS, name="blue", namespace="team-a")
    await embedded_engine.publish(BLUE)
    await embedded_engine.until_done(BLUE)
    await running.stop()
    await embedded_engine.publish(again)
    assert await shown(embedded_engine, "widget/blue") == again.deletion
    assert await shown(embedded_engine, BLUE.uid[:8]) == BLUE.deletion


async def test_among_many_deletions_none_is_missed(embedded_engine: EngineUnderTest) -> None:
    crowd = [event(f"u{number:05}", name=f"n{number}") for number in range(6000)]
    for first in range(0, len(crowd), 500):
        await embedded_engine.publish(*crowd[first : first + 500])
    await embedded_engine.publish(BLUE)
    assert await shown(embedded_engine, "widget/blue") == BLUE.deletion
    assert await shown(embedded_engine, "thing/n5999") == crowd[-1].deletion
    assert await shown(embedded_engine, "u05998") == crowd[-2].deletion
    found = await find_deletions(embedded_engine.installation, DeletionQuery(kind="thing"), "open")
    assert {view.id for view in found} == {one.deletion for one in crowd}


# ---- jobs


async def test_a_job_is_found_by_its_object_and_its_number(engine: EngineUnderTest) -> None:
    jobs = await engine.lay(BLUE, [thing("1"), thing("2")])
    await engine.lay(OTHER_BLUE, [thing("3")])
    number = jobs["2"].rpartition("#")[2]
    for words in (
        ["widget/blue#" + number, "-n", "team-a"],
        [f"7c9e6679-7#{number}"],
        [f"{BLUE.uid}#{number}"],
        [jobs["2"]],
    ):
        answer = await knell(engine, "jobs", "show", *words, "--output", "json")
        assert (answer.code, answer.json["id"]) == (0, jobs["2"])
    # With one job under way its number may be left out.
    assert (await knell(engine, "jobs", "show", "widget/blue", "-n", "team-b", "--output", "json")).json[
        "target"
    ] == "3"
    ways = offered(await knell(engine, "jobs", "show", "widget/blue", "-n", "team-a"))
    found = [(await knell(engine, "jobs", "show", *way, "--output", "json")).json["id"] for way in ways]
    assert sorted(found) == sorted(jobs[name] for name in ("1", "2"))
    assert len(offered(await knell(engine, "jobs", "retry", f"widget/blue#{number}"))) == 2


async def test_a_command_changes_the_addressed_job_and_no_other(embedded_engine: EngineUnderTest) -> None:
    mine = await embedded_engine.lay(BLUE, [thing("1"), thing("2")])
    others = await embedded_engine.lay(OTHER_BLUE, [thing("3")])
    number = mine["1"].rpartition("#")[2]
    answer = await knell(embedded_engine, "jobs", "abandon", f"widget/blue#{number}", "-n", "team-a", answer="y\n")
    assert answer.code == 0, answer.err
    assert "widgets.example.org team-a/blue will be released without it" in answer.out
    answer = await knell(embedded_engine, "jobs", "abandon", "widget/blue", "--yes")
    assert answer.code == 2
    states = {
        name: (await embedded_engine.job(one)).get("state") for name, one in (mine | others).items() if len(name) == 1
    }
    assert states == {"1": "abandoned", "2": None, "3": None}
    # The only one that is left, but for the release.
    assert (await knell(embedded_engine, "jobs", "retry", "widget/blue", "-n", "team-a")).code == 0


async def test_no_job_is_abandoned_by_an_address_that_another_object_has_or_had(
    embedded_engine: EngineUnderTest,
) -> None:
    """Job numbers repeat in every deletion: the job that was meant may have ended, that of another object may run."""
    running = await embedded_engine.start(ScriptedProvider())
    await embedded_engine.publish(BLUE)
    await embedded_engine.until_done(BLUE)
    await running.stop()
    jobs = await embedded_engine.lay(OTHER_BLUE, [thing("1"), thing("2")])
    number = jobs["1"].rpartition("#")[2]
    assert (await knell(embedded_engine, "jobs", "show", f"widget/blue#{number}")).code == 0
    ways = offered(await knell(embedded_engine, "jobs", "abandon", f"widget/blue#{number}", "--yes"))
    assert (await embedded_engine.job(jobs["1"])).get("state") is None
    assert [f"widget/blue#{number}", "-n", "team-b"] in ways
    assert (await knell(embedded_engine, "jobs", "abandon", f"widget/blue#{number}", "-n", "team-b", "--yes")).code == 0
    full = ("jobs", "abandon", jobs["2"], "--yes")
    assert (await knell(embedded_engine, *full, "-n", "team-a")).code == 1
    assert (await embedded_engine.job(jobs["2"])).get("state") is None
    assert (await knell(embedded_engine, *full, "-n", "team-b")).code == 0


async def test_a_held_deletion_is_not_dropped_by_an_address_that_another_object_has(
    embedded_engine: EngineUnderTest,
) -> None:
    await hold(embedded_engine)
    await embedded_engine.publish(OTHER_BLUE)
    ways = offered(await knell(embedded_engine, "held", "drop", "widget/blue", "--yes"))
    assert (await embedded_engine.deletion(BLUE))["state"] == "held"
    assert ["widget/blue", "-n", "team-a"] in ways
    assert (await knell(embedded_engine, "held", "drop", "widget/blue", "-n", "team-a", "--yes")).code == 0


async def test_a_deletion_without_a_job_under_way_says_so(embedded_engine: EngineUnderTest) -> None:
    await embedded_engine.publish(BLUE)
    answer = await knell(embedded_engine, "jobs", "show", "widget/blue")
    assert (answer.code, "no job of widget/blue is under way" in answer.err) == (1, True)
    answer = await knell(embedded_engine, "jobs", "show", "widget/green#1.0")
    assert (answer.code, "no job of widget/green#1.0 is known" in answer.err) == (1, True)


# ---- held entries


async def hold(engine: EngineUnderTest) -> None:
    """BLUE is held as a deletion, RED has two held jobs and one that is not."""
    plans: dict[str, PlanAnswer] = {
        BLUE.uid: Hold("no such account"),
        RED.uid: Plan([thing("r1"), thing("r2"), thing("w", "sim/acct/wait")]),
    }
    provider = ScriptedProvider(plans=plans, always=Refused("tagged with another owner"))
    provider.answers["w"] = [Pending(engine.settings.worker.lease * 1000, "takes its time")]
    running = await engine.start(provider)
    await engine.publish(BLUE, RED)

    async def held() -> bool:
        return len(await engine.members("held")) == 3

    await engine.until("all three are held", held)
    await running.stop()


async def test_what_is_held_is_dropped_and_replayed_by_its_object(engine: EngineUnderTest) -> None:
    await hold(engine)
    answer = await knell(engine, "held", "drop", "widget/blue", answer="n\n")
    assert (answer.code, "widgets.example.org team-a/blue" in answer.out) == (1, True)
    ways = offered(await knell(engine, "held", "replay", "widget/red", "-n", "team-a"))
    assert len(ways) == 2
    assert (await knell(engine, "held", "replay", *ways[0])).code == 0
    # Now only one is left.
    answer = await knell(engine, "held", "drop", RED.uid[:8], "--yes")
    assert (answer.code, "is abandoned" in answer.out) == (0, True)
    assert (await knell(engine, "held", "drop", "Widget/blue", "-n", "team-a", "--yes")).code == 0
    assert (await engine.deletion(BLUE))["state"] == "dropped"
    assert await engine.members("held") == {}
    answer = await knell(engine, "held", "drop", "widget/blue", "--yes")
    assert (answer.code, "widget/blue is not held (any more)" in answer.err) == (1, True)


# ---- kept resources


async def test_what_was_kept_is_forgotten_with_the_object_that_was_addressed_only(
    embedded_engine: EngineUnderTest,
) -> None:
    memory = KeptStore(embedded_engine.installation)
    for uid, namespace in (("1" * 20, "team-a"), ("2" * 20, "team-b")):
        await memory.save(
            KeepDecision(
                v=VERSION,
                place="aws/123456789012/eu-west-1",
                name="prod",
                object=f"{WIDGETS} {namespace}/prod",
                uid=uid,
                source="tests",
                why="retain",
                at=1,
            )
        )
    listed = (await knell(embedded_engine, "kept", "list", "--output", "name")).out
    assert listed == "widget.example.org/prod\n"
    words = ("kept", "forget", "--record-only", "--yes")
    assert len(offered(await knell(embedded_engine, *words, "widget/prod"))) == 2
    name = "aws/123456789012/eu-west-1/prod"
    assert (await knell(embedded_engine, *words, name, "-n", "team-c")).code == 1
    assert len(await memory.decisions("aws/123456789012/eu-west-1", "prod")) == 2
    answer = await knell(embedded_engine, *words, "widget/prod", "-n", "team-c")
    assert (answer.code, "nothing is remembered as kept under widget/prod" in answer.err) == (1, True)
    assert (await knell(embedded_engine, *words, "widget/prod", "-n", "team-b")).code == 0
    assert [one.uid for one in await memory.decisions("aws/123456789012/eu-west-1", "prod")] == ["1" * 20]
    assert (await knell(embedded_engine, *words, "1111111")).code == 0
    assert await memory.decisions("aws/123456789012/eu-west-1", "prod") == []


# ---- lists


async def test_tables_are_80_columns_wide_and_their_ids_and_names_lead_back(engine: EngineUnderTest) -> None:
    await hold(engine)
    for words in (("deletions", "list"), ("jobs", "list"), ("held", "list"), ("deletions", "show", "widget/red")):
        out = (await knell(engine, *words)).out
        assert max(map(len, out.splitlines())) <= 80
        wide = (await knell(engine, *words, "--output", "wide")).out
        assert "tagged with another owner" in wide or "no such account" in wide
    for words, show in ((("deletions", "list"), "deletions"), (("jobs", "list"), "jobs")):
        rows = (await knell(engine, *words)).out.splitlines()[3:-1]
        ids = [row.split()[0] for row in rows if not row.startswith(" ")]
        names = (await knell(engine, *words, "--output", "name")).out.splitlines()
        assert len(ids) == len(names) == {"deletions": 2, "jobs": 3}[show]
        for address in (*ids, *names):
            assert (await knell(engine, show, "show", address)).code == 0
    names = (await knell(engine, "held", "list", "--output", "name")).out.splitlines()
    assert sorted(name.partition("#")[0] for name in names) == [
        "widget.example.org/blue",
        *["widget.example.org/red"] * 2,
    ]
    for name in names:
        assert (await knell(engine, "held", "replay", name)).code == 0
    assert await engine.members("held") == {}


async def test_repeated_lines_of_a_timeline_are_folded_and_the_wide_form_has_each(
    embedded_engine: EngineUnderTest,
) -> None:
    await embedded_engine.lay(BLUE, [thing("1")])
    stem = embedded_engine.shard(BLUE).stem
    for number in range(27):
        entry = {"entry": "decision", "what": "held", "id": f"deletion:{BLUE.deletion}", "why": "no such account"}
        await embedded_engine.client.xadd(
            f"{stem}audit", entry, id=f"{await embedded_engine.now() + 10_000 * number}-0"
        )
    table = (await knell(embedded_engine, "deletions", "show", "widget/blue")).out
    assert table.count("no such account") == 1
    assert "held 27 times in 4m" in " ".join(table.split())
    wide = (await knell(embedded_engine, "deletions", "show", "widget/blue", "--output", "wide")).out
    assert wide.count("no such account") == 27
    story = (await knell(embedded_engine, "deletions", "show", "widget/blue", "--output", "json")).json
    assert sum(one["what"] == "held" for one in story["timeline"]) == 27
