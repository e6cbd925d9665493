"""`knell jobs` lists every job with its state, and retries and abandons jobs."""

from datetime import timedelta

import msgspec
import pytest

from service.contract import Job, Refused, decode_job_record
from service.settings import RetrySettings
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from tests.integration.command_line import embedded_engine, engine, knell
from workers.runtime.retry_policy import outcome_of, settlement

__all__ = ["embedded_engine", "engine"]

OTHER = "aws/7/ec2.Delete"


async def listed(engine: EngineUnderTest, *words: str) -> dict[str, str]:
    """Target -> state, from `knell jobs list`."""
    answer = await knell(engine, "jobs", "list", "--output", "json", *words)
    assert (answer.code, answer.err) == (0, "")
    return {job["target"]: job["state"] for job in answer.json["jobs"]}


async def settle(engine: EngineUnderTest, lane: str, worker: str, verdict: Refused | Exception) -> str:
    """Leases one due job of the lane and settles it with this verdict."""
    for shard in engine.installation.shards:
        taken = await engine.take(await _some_deletion(engine, shard.number), worker, lane, 1)
        for found in taken.lanes:
            job = Job(found.jobs[0], found.fence, decode_job_record(found.records[0]))
            outcome = outcome_of(job, verdict, RetrySettings(), taken.now)
            await shard.settle(worker, [settlement(job, lane, outcome, called=True)])
            return job.id
    raise AssertionError(f"nothing is due in {lane}")


async def _some_deletion(engine: EngineUnderTest, shard: int) -> str:
    return next(name for name in (f"x{n}" for n in range(1000)) if engine.shard(name).number == shard)


async def test_every_state_has_its_jobs_and_no_others(engine: EngineUnderTest) -> None:
    going = event("a")
    targets = [
        thing("due"),
        thing("waiting", after=timedelta(hours=1)),
        thing("later", stage=1),
        thing("leased", "sim/acct/leased"),
        thing("alone", "sim/acct/alone"),
        thing("newer", "sim/acct/newer"),
        thing("refused", "sim/acct/refused"),
        thing("dead", "sim/acct/dead", strategy="best-effort"),
    ]
    await engine.lay(going, targets)
    await settle(engine, "sim/acct/refused", "hand", Refused("tagged with another owner"))
    await engine.take(going, "fallen", "sim/acct/alone", lease=timedelta(milliseconds=1))
    await engine.jump(timedelta(seconds=1))
    await engine.shard(going).reclaim(silence=timedelta(0))
    await engine.take(going, "old", "sim/acct/newer", version=0)
    await engine.jump(engine.settings.retry.best_effort_deadline)
    await settle(engine, "sim/acct/dead", "hand", ValueError("still there"))
    await engine.jump(-engine.settings.retry.best_effort_deadline)
    await engine.take(going, "hand", "sim/acct/leased")

    assert await listed(engine, "--state", "due") == {"due": "due"}
    assert await listed(engine, "--state", "waiting") == {"waiting": "waiting", "refused": "waiting"}
    assert await listed(engine, "--state", "leased") == {"leased": "leased"}
    assert await listed(engine, "--state", "alone") == {"alone": "alone"}
    assert await listed(engine, "--state", "newer") == {"newer": "newer"}
    assert await listed(engine, "--state", "held") == {"refused": "waiting"}
    assert await listed(engine, "--state", "dead") == {"dead": "dead"}
    everything = await listed(engine)
    assert everything == {
        "due": "due", "waiting": "waiting", "refused": "waiting", "leased": "leased", "alone": "alone",
        "newer": "newer", "dead": "dead",
    }  # fmt: skip


async def test_a_lane_and_a_limit_narrow_the_list(engine: EngineUnderTest) -> None:
    for uid in "abc":
        await engine.lay(event(uid), [thing(f"{uid}{number}") for number in range(4)])
    await engine.lay(event("d"), [thing("other", OTHER)])

    assert await listed(engine, "--lane", OTHER) == {"other": "due"}
    answer = await knell(engine, "jobs", "list", "--lane", LANE, "--limit", "5", "--output", "json")
    assert (len(answer.json["jobs"]), answer.json["more"]) == (5, True)
    dues = [job["due"] for job in answer.json["jobs"]]
    assert dues == sorted(dues)
    answer = await knell(engine, "jobs", "list", "--lane", LANE, "--limit", "12", "--output", "json")
    assert (len(answer.json["jobs"]), answer.json["more"]) == (12, False)
    table = (await knell(engine, "jobs", "list", "--limit", "2")).out
    assert table.count("#1.") == 2
    assert "and more (--limit, now 2)" in table


async def test_a_job_shows_its_worker_and_what_went_wrong(engine: EngineUnderTest) -> None:
    going = event("a")
    jobs = await engine.lay(going, [thing("1", data="region=eu")])
    await settle(engine, LANE, "hand", ValueError("https://user:hidden@cloud/ said no"))
    await engine.jump(timedelta(minutes=10))
    await engine.take(going, "worker-9", LANE)

    answer = await knell(engine, "jobs", "show", jobs["1"], "--output", "json")
    job = answer.json
    assert (job["state"], job["worker"], job["attempts"], job["verdict"]) == (
        "leased",
        "worker-9",
        1,
        "retry",
    )
    assert job["lease_end"] is not None
    assert job["first_error"] == job["last_error"] == "ValueError: https://***@cloud/ said no"
    table = (await knell(engine, "jobs", "show", jobs["1"])).out
    assert "region=eu" in table
    assert "hidden" not in table


async def test_a_job_whose_stage_is_not_open_says_what_it_waits_for(embedded_engine: EngineUnderTest) -> None:
    jobs = await embedded_engine.lay(event("a"), [thing("1"), thing("2", stage=1)])
    assert "when stage 1 opens" in (await knell(embedded_engine, "jobs", "show", jobs["2"])).out
    answer = await knell(embedded_engine, "jobs", "retry", jobs["2"])
    assert (answer.code, "waits for its stage" in answer.err) == (1, True)


async def test_an_unreadable_record_is_shown_and_can_only_be_abandoned(embedded_engine: EngineUnderTest) -> None:
    jobs = await embedded_engine.lay(event("a"), [thing("1")])
    plan, _, number = jobs["1"].rpartition(".")
    await embedded_engine.client.hset(embedded_engine.shard("c1/things/a/1").stem + f"job:{plan}", number, "not json")

    assert "not json" in (await knell(embedded_engine, "jobs", "show", jobs["1"])).out
    assert "can't be read" in (await knell(embedded_engine, "jobs", "retry", jobs["1"])).err
    answer = await knell(embedded_engine, "jobs", "abandon", jobs["1"], answer="y\n")
    assert "released without it" in answer.out
    assert answer.code == 0


async def test_a_retry_makes_a_job_due_now_and_counts_anew(engine: EngineUnderTest) -> None:
    jobs = await engine.lay(event("a"), [thing("1")])
    await settle(engine, LANE, "hand", ValueError("no"))
    for _ in range(2):
        answer = await knell(engine, "jobs", "retry", jobs["1"])
        assert (answer.code, answer.err) == (0, "")
        assert "is due now" in answer.out
    (job,) = (await knell(engine, "jobs", "list", "--output", "json")).json["jobs"]
    assert (job["state"], job["attempts"]) == ("due", 0)
    (why,) = {entry["why"] for entry in await engine.audit("decision") if entry["what"] == "retried"}
    assert "@" in why


async def test_a_job_in_hand_is_not_retried(embedded_engine: EngineUnderTest) -> None:
    going = event("a")
    jobs = await embedded_engine.lay(going, [thing("1")])
    await embedded_engine.take(going, "hand", LANE)
    answer = await knell(embedded_engine, "jobs", "retry", jobs["1"])
    assert (answer.code, "being tried at this moment" in answer.out) == (0, True)


@pytest.mark.parametrize("command", ["show", "retry", "abandon"])
@pytest.mark.parametrize("job", ["c1/things/a/1#1.7", "c1/things/nobody/1#1.0", "nonsense", "a#b.c"])
async def test_an_unknown_job_is_reported_as_unknown(embedded_engine: EngineUnderTest, command: str, job: str) -> None:
    await embedded_engine.lay(event("a"), [thing("1")])
    answer = await knell(embedded_engine, "jobs", command, job)
    assert answer.code == 1
    assert f"no job {job} is known" in answer.err
    assert "Traceback" not in answer.err


async def test_abandoning_a_required_job_asks_and_says_what_it_means(engine: EngineUnderTest) -> None:
    going = event("a")
    jobs = await engine.lay(going, [thing("sg-1")])

    for typed in ("n\n", None):
        answer = await knell(engine, "jobs", "abandon", jobs["sg-1"], answer=typed)
        assert answer.code == 1
        assert "things name-a will be released without it, and thing sg-1 may be left behind" in answer.out
        assert "nothing was changed" in answer.err
    assert (await engine.deletion(going))["state"] == "running"

    answer = await knell(engine, "jobs", "abandon", jobs["sg-1"], answer="y\n")
    assert (answer.code, "is abandoned" in answer.out) == (0, True)
    assert (await engine.deletion(going))["state"] == "releasing"
    answer = await knell(engine, "jobs", "abandon", jobs["sg-1"], "--yes")
    assert (answer.code, "has ended already: it was abandoned" in answer.err) == (1, True)
    answer = await knell(engine, "jobs", "retry", jobs["sg-1"])
    assert (answer.code, "has ended already: it was abandoned" in answer.err) == (1, True)


async def test_abandoning_asks_nothing_with_yes_or_for_a_best_effort_job(embedded_engine: EngineUnderTest) -> None:
    jobs = await embedded_engine.lay(event("a"), [thing("must"), thing("may", strategy="best-effort")])
    assert (await knell(embedded_engine, "jobs", "abandon", jobs["may"])).code == 0
    assert (await knell(embedded_engine, "jobs", "abandon", jobs["must"], "--yes")).code == 0
    assert (await embedded_engine.deletion(event("a")))["state"] == "releasing"


async def test_a_release_can_not_be_abandoned(embedded_engine: EngineUnderTest) -> None:
    going = event("a")
    await embedded_engine.lay(going, [thing("1")])
    release = (await embedded_engine.jobs_of(going))[-1]
    answer = await knell(embedded_engine, "jobs", "abandon", release, "--yes")
    assert (answer.code, "can't be abandoned" in answer.err) == (1, True)


async def test_what_a_worker_finished_is_shown_as_ended(embedded_engine: EngineUnderTest) -> None:
    going = event("a")
    await embedded_engine.start(ScriptedProvider())
    await embedded_engine.publish(going)
    await embedded_engine.until_done(going)
    job = (await embedded_engine.jobs_of(going))[0]
    assert (
        msgspec.json.decode((await knell(embedded_engine, "jobs", "show", job, "--output", "json")).out)["state"]
        == "gone"
    )
    answer = await knell(embedded_engine, "jobs", "retry", job)
    assert (answer.code, "its target is gone" in answer.err) == (1, True)
    assert "No such job." in (await knell(embedded_engine, "jobs", "list")).out
