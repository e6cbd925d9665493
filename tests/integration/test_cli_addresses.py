"""Deletions, jobs and held entries by the addresses that people type: kind and name, ids, and how an id begins."""

import pytest

from service.contract import Hold, Pending, Plan, Refused
from service.contract.kept import Decision
from service.contract.version import VERSION
from service.engine.kept import KeptMemory
from service.engine.views.finding import Sought, find_deletions
from tests.engine.outside import Outside, PlanAnswer, event, thing
from tests.engine.world import World
from tests.integration.operating import Answer, knell, small, world

__all__ = ["small", "world"]

WIDGETS = "widgets.example.org"
UIDS = (
    "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "7c9e6679-aaaa-40de-944b-e07fc1f90ae7",
    "0f8fad5b-d9cb-469f-a165-708677289",
)
BLUE = event(UIDS[0], resource=WIDGETS, name="blue", namespace="team-a")
OTHER_BLUE = event(UIDS[1], resource=WIDGETS, name="blue", namespace="team-b")
RED = event(UIDS[2], resource=WIDGETS, name="red", namespace="team-a")


async def shown(world: World, *words: str) -> str:
    """The id of the deletion that these words lead to."""
    answer = await knell(world, "deletions", "show", *words, "--output", "json")
    assert (answer.code, answer.err) == (0, "")
    return str(answer.json["deletion"]["id"])


def offered(answer: Answer) -> list[list[str]]:
    """What an answer to an ambiguous address says to type, as words."""
    assert (answer.code, answer.out) == (2, "")
    assert "type one of these:" in answer.err
    assert all(len(line) <= 80 for line in answer.err.splitlines())
    return [line.split("  ")[1].split() for line in answer.err.splitlines() if line.startswith("  ")]


# ---- deletions


@pytest.mark.parametrize("kind", ["widget", "Widget", "widgets", "widgets.example.org", "widget.example.org"])
async def test_a_deletion_is_found_by_its_object_in_every_state(world: World, kind: str) -> None:
    outside = Outside(plans={RED.uid: Hold("no such account")})
    running = await world.start(outside)
    await world.publish(BLUE, RED)
    await world.until_done(BLUE)

    async def held() -> bool:
        return await world.state(RED) == "held"

    await world.until("the other one is held", held)
    await running.stop()
    late = event("late", resource=WIDGETS, name="late", namespace="team-a")
    await world.publish(late)
    for one in (BLUE, RED, late):
        assert await shown(world, f"{kind}/{one.name}") == one.deletion
        assert await shown(world, f"{kind}/{one.name}", "-n", "team-a") == one.deletion
        answer = await knell(world, "deletions", "show", f"{kind}/{one.name}", "-n", "team-c")
        assert (answer.code, f"no deletion of {kind}/{one.name} in namespace team-c is known" in answer.err) == (
            1,
            True,
        )


async def test_the_start_of_a_uid_is_enough_where_no_other_begins_so(world: World) -> None:
    await world.publish(BLUE, RED, event("a"), event("ab"))
    for word in (RED.uid, RED.uid[:8], RED.uid[:4], RED.deletion):
        assert await shown(world, word) == RED.deletion
    # A whole uid means itself, however short; the start of one has four characters at least.
    assert await shown(world, "a") == event("a").deletion
    for word in (RED.uid[:3], "0f8fXXXX", "*", "[0-9]*", "0f8?"):
        answer = await knell(world, "deletions", "show", word)
        assert (answer.code, f"no deletion {word} is known" in answer.err) == (1, True)


async def test_an_ambiguous_address_lists_what_to_type_and_each_of_it_leads_to_one(world: World) -> None:
    await world.publish(BLUE, OTHER_BLUE, RED)
    for word in ("widget/blue", "7c9e6679"):
        ways = offered(await knell(world, "deletions", "show", word))
        assert {await shown(world, *way) for way in ways} == {BLUE.deletion, OTHER_BLUE.deletion}
    assert ["widget/blue", "-n", "team-a"] in offered(await knell(world, "deletions", "show", "widget/blue"))


async def test_objects_of_one_name_in_two_clusters_or_groups_are_told_apart(small: World) -> None:
    there = event("1" * 20, resource=WIDGETS, name="blue", namespace="team-a", cluster="c2")
    foreign = event("2" * 20, resource="widgets.other.org", name="blue", namespace="team-a")
    await small.publish(BLUE, there, foreign)
    ways = offered(await knell(small, "deletions", "show", "widget/blue", "-n", "team-a"))
    assert {await shown(small, *way) for way in ways} == {BLUE.deletion, there.deletion, foreign.deletion}
    assert await shown(small, "widget/blue", "--cluster", "c2") == there.deletion
    assert await shown(small, "widgets.other.org/blue") == foreign.deletion
    # A name of a cluster stands for the uid that it had.
    await small.client.hset(small.installation.keys.of(0, "clusters"), "second", "c2")
    assert await shown(small, "widget/blue", "--cluster", "second") == there.deletion


async def test_a_deletion_under_way_comes_before_those_that_have_ended(small: World) -> None:
    running = await small.start(Outside())
    again = event("9" * 20, resource=WIDGETS, name="blue", namespace="team-a")
    await small.publish(BLUE)
    await small.until_done(BLUE)
    await running.stop()
    await small.publish(again)
    assert await shown(small, "widget/blue") == again.deletion
    assert await shown(small, BLUE.uid[:8]) == BLUE.deletion


async def test_among_many_deletions_none_is_missed(small: World) -> None:
    crowd = [event(f"u{number:05}", name=f"n{number}") for number in range(6000)]
    for first in range(0, len(crowd), 500):
        await small.publish(*crowd[first : first + 500])
    await small.publish(BLUE)
    assert await shown(small, "widget/blue") == BLUE.deletion
    assert await shown(small, "thing/n5999") == crowd[-1].deletion
    assert await shown(small, "u05998") == crowd[-2].deletion
    found = await find_deletions(small.installation, Sought(kind="thing"), "open")
    assert {view.id for view in found} == {one.deletion for one in crowd}


# ---- jobs


async def test_a_job_is_found_by_its_object_and_its_number(world: World) -> None:
    jobs = await world.lay(BLUE, [thing("1"), thing("2")])
    await world.lay(OTHER_BLUE, [thing("3")])
    number = jobs["2"].rpartition("#")[2]
    for words in (
        ["widget/blue#" + number, "-n", "team-a"],
        [f"7c9e6679-7#{number}"],
        [f"{BLUE.uid}#{number}"],
        [jobs["2"]],
    ):
        answer = await knell(world, "jobs", "show", *words, "--output", "json")
        assert (answer.code, answer.json["id"]) == (0, jobs["2"])
    # With one job under way it need not be said which.
    assert (await knell(world, "jobs", "show", "widget/blue", "-n", "team-b", "--output", "json")).json["target"] == "3"
    ways = offered(await knell(world, "jobs", "show", "widget/blue", "-n", "team-a"))
    found = [(await knell(world, "jobs", "show", *way, "--output", "json")).json["id"] for way in ways]
    assert sorted(found) == sorted(jobs[name] for name in ("1", "2"))
    assert len(offered(await knell(world, "jobs", "retry", f"widget/blue#{number}"))) == 2


async def test_orders_reach_the_job_that_was_addressed_and_no_other(small: World) -> None:
    mine = await small.lay(BLUE, [thing("1"), thing("2")])
    others = await small.lay(OTHER_BLUE, [thing("3")])
    number = mine["1"].rpartition("#")[2]
    answer = await knell(small, "jobs", "abandon", f"widget/blue#{number}", "-n", "team-a", answer="y\n")
    assert answer.code == 0, answer.err
    assert "widgets.example.org team-a/blue will be released without it" in answer.out
    answer = await knell(small, "jobs", "abandon", "widget/blue", "--yes")
    assert answer.code == 2
    states = {name: (await small.job(one)).get("state") for name, one in (mine | others).items() if len(name) == 1}
    assert states == {"1": "abandoned", "2": None, "3": None}
    # The only one that is left, but for the release.
    assert (await knell(small, "jobs", "retry", "widget/blue", "-n", "team-a")).code == 0


async def test_nothing_is_given_up_by_an_address_that_another_object_has_or_had(small: World) -> None:
    """Numbers of jobs are the same for all: what was meant may have ended meanwhile, and another is under way."""
    running = await small.start(Outside())
    await small.publish(BLUE)
    await small.until_done(BLUE)
    await running.stop()
    jobs = await small.lay(OTHER_BLUE, [thing("1"), thing("2")])
    number = jobs["1"].rpartition("#")[2]
    assert (await knell(small, "jobs", "show", f"widget/blue#{number}")).code == 0
    ways = offered(await knell(small, "jobs", "abandon", f"widget/blue#{number}", "--yes"))
    assert (await small.job(jobs["1"])).get("state") is None
    assert [f"widget/blue#{number}", "-n", "team-b"] in ways
    assert (await knell(small, "jobs", "abandon", f"widget/blue#{number}", "-n", "team-b", "--yes")).code == 0
    full = ("jobs", "abandon", jobs["2"], "--yes")
    assert (await knell(small, *full, "-n", "team-a")).code == 1
    assert (await small.job(jobs["2"])).get("state") is None
    assert (await knell(small, *full, "-n", "team-b")).code == 0


async def test_a_held_deletion_is_not_dropped_by_an_address_that_another_object_has(small: World) -> None:
    await hold(small)
    await small.publish(OTHER_BLUE)
    ways = offered(await knell(small, "held", "drop", "widget/blue", "--yes"))
    assert (await small.deletion(BLUE))["state"] == "held"
    assert ["widget/blue", "-n", "team-a"] in ways
    assert (await knell(small, "held", "drop", "widget/blue", "-n", "team-a", "--yes")).code == 0


async def test_a_deletion_without_a_job_under_way_says_so(small: World) -> None:
    await small.publish(BLUE)
    answer = await knell(small, "jobs", "show", "widget/blue")
    assert (answer.code, "no job of widget/blue is under way" in answer.err) == (1, True)
    answer = await knell(small, "jobs", "show", "widget/green#1.0")
    assert (answer.code, "no job of widget/green#1.0 is known" in answer.err) == (1, True)


# ---- what is held


async def hold(world: World) -> None:
    """BLUE is held as a deletion, RED has two held jobs and one that is not."""
    plans: dict[str, PlanAnswer] = {
        BLUE.uid: Hold("no such account"),
        RED.uid: Plan([thing("r1"), thing("r2"), thing("w", "sim/acct/wait")]),
    }
    outside = Outside(plans=plans, always=Refused("tagged with another owner"))
    outside.answers["w"] = [Pending(world.settings.worker.lease * 1000, "takes its time")]
    running = await world.start(outside)
    await world.publish(BLUE, RED)

    async def held() -> bool:
        return len(await world.members("held")) == 3

    await world.until("all three are held", held)
    await running.stop()


async def test_what_is_held_is_dropped_and_replayed_by_its_object(world: World) -> None:
    await hold(world)
    answer = await knell(world, "held", "drop", "widget/blue", answer="n\n")
    assert (answer.code, "widgets.example.org team-a/blue" in answer.out) == (1, True)
    ways = offered(await knell(world, "held", "replay", "widget/red", "-n", "team-a"))
    assert len(ways) == 2
    assert (await knell(world, "held", "replay", *ways[0])).code == 0
    # Now only one is left.
    answer = await knell(world, "held", "drop", RED.uid[:8], "--yes")
    assert (answer.code, "is abandoned" in answer.out) == (0, True)
    assert (await knell(world, "held", "drop", "Widget/blue", "-n", "team-a", "--yes")).code == 0
    assert (await world.deletion(BLUE))["state"] == "dropped"
    assert await world.members("held") == {}
    answer = await knell(world, "held", "drop", "widget/blue", "--yes")
    assert (answer.code, "widget/blue is not held (any more)" in answer.err) == (1, True)


# ---- what was kept


async def test_what_was_kept_is_forgotten_with_the_object_that_was_addressed_only(small: World) -> None:
    memory = KeptMemory(small.installation)
    for uid, namespace in (("1" * 20, "team-a"), ("2" * 20, "team-b")):
        await memory.remember(
            Decision(v=VERSION, place="aws/123456789012/eu-west-1", name="prod", object=f"{WIDGETS} {namespace}/prod",
                     uid=uid, source="tests", why="retain", at=1)
        )  # fmt: skip
    listed = (await knell(small, "kept", "list", "--output", "name")).out
    assert listed == "widget.example.org/prod\n"
    words = ("kept", "forget", "--record-only", "--yes")
    assert len(offered(await knell(small, *words, "widget/prod"))) == 2
    name = "aws/123456789012/eu-west-1/prod"
    assert (await knell(small, *words, name, "-n", "team-c")).code == 1
    assert len(await memory.decisions("aws/123456789012/eu-west-1", "prod")) == 2
    answer = await knell(small, *words, "widget/prod", "-n", "team-c")
    assert (answer.code, "nothing is remembered as kept under widget/prod" in answer.err) == (1, True)
    assert (await knell(small, *words, "widget/prod", "-n", "team-b")).code == 0
    assert [one.uid for one in await memory.decisions("aws/123456789012/eu-west-1", "prod")] == ["1" * 20]
    assert (await knell(small, *words, "1111111")).code == 0
    assert await memory.decisions("aws/123456789012/eu-west-1", "prod") == []


# ---- lists


async def test_tables_are_80_columns_wide_and_their_ids_and_names_lead_back(world: World) -> None:
    await hold(world)
    for words in (("deletions", "list"), ("jobs", "list"), ("held", "list"), ("deletions", "show", "widget/red")):
        out = (await knell(world, *words)).out
        assert max(map(len, out.splitlines())) <= 80
        wide = (await knell(world, *words, "--output", "wide")).out
        assert "tagged with another owner" in wide or "no such account" in wide
    for words, show in ((("deletions", "list"), "deletions"), (("jobs", "list"), "jobs")):
        rows = (await knell(world, *words)).out.splitlines()[3:-1]
        ids = [row.split()[0] for row in rows if not row.startswith(" ")]
        names = (await knell(world, *words, "--output", "name")).out.splitlines()
        assert len(ids) == len(names) == {"deletions": 2, "jobs": 3}[show]
        for address in (*ids, *names):
            assert (await knell(world, show, "show", address)).code == 0
    names = (await knell(world, "held", "list", "--output", "name")).out.splitlines()
    assert sorted(name.partition("#")[0] for name in names) == [
        "widget.example.org/blue",
        *["widget.example.org/red"] * 2,
    ]
    for name in names:
        assert (await knell(world, "held", "replay", name)).code == 0
    assert await world.members("held") == {}


async def test_a_story_folds_what_repeats_and_the_wide_form_has_each(small: World) -> None:
    await small.lay(BLUE, [thing("1")])
    stem = small.shard(BLUE).stem
    for number in range(27):
        entry = {"entry": "decision", "what": "held", "id": f"deletion:{BLUE.deletion}", "why": "no such account"}
        await small.client.xadd(f"{stem}audit", entry, id=f"{await small.now() + 10_000 * number}-0")
    table = (await knell(small, "deletions", "show", "widget/blue")).out
    assert table.count("no such account") == 1
    assert "held 27 times in 4m" in " ".join(table.split())
    wide = (await knell(small, "deletions", "show", "widget/blue", "--output", "wide")).out
    assert wide.count("no such account") == 27
    story = (await knell(small, "deletions", "show", "widget/blue", "--output", "json")).json
    assert sum(one["what"] == "held" for one in story["timeline"]) == 27
