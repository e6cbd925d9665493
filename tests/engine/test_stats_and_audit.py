"""Statistics and audit: `stats` equals the real counts, and the audit covers every intent, call and decision."""

import asyncio
from datetime import timedelta

import structlog
from structlog.testing import capture_logs

from service.contract import Gone, Job, Refused, Throttled, Verdict
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from workers.handlers.protocol import Batch

HOUR = timedelta(hours=1)


async def test_after_a_survey_the_numbers_equal_the_truth(engine: EngineUnderTest) -> None:
    engine.change("retry", best_effort_deadline=timedelta(milliseconds=1))
    provider, free = ScriptedProvider(), asyncio.Event()

    async def slow(job: Job, batch: Batch) -> Verdict:
        await free.wait()
        return Gone()

    for number in range(3):
        provider.answers[f"slow{number}"] = [slow]
    provider.answers["refused"] = [Refused("not ours")]
    provider.answers["hopeless"] = [OSError("no") for _ in range(9)]
    provider.answers["busy"] = [Throttled(HOUR)]
    one, finished = event("a"), event("finished")
    jobs = await engine.lay(
        one,
        [
            *(thing(f"slow{number}", "sim/acct/slow") for number in range(3)),
            thing("refused", "sim/acct/refused"),
            thing("hopeless", "sim/acct/hopeless", strategy="best-effort"),
            thing("busy", "sim/acct/busy"),
            *(thing(f"later{number}", "sim/acct/later", after=HOUR) for number in range(4)),
        ],
    )
    await engine.publish(finished)
    running = await engine.start(provider)
    await engine.until_done(finished)

    async def settled() -> bool:
        records = [await engine.job(jobs[name]) for name in ("refused", "hopeless", "busy")]
        words = [record.get("state") or record.get("verdict") for record in records]
        return words == ["refused", "dead", "throttled"] and len(await engine.leases("sim/acct/slow")) == 3

    await engine.until("everything is in its place", settled)
    for shard in engine.installation.shards:
        await shard.pause("*", stop=True, who="tests")
    await engine.jump(2 * HOUR)
    before = await engine.now()
    for shard in engine.installation.shards:
        await shard.refresh_stats()
    stats = await engine.stats()
    after = await engine.now()
    assert stats["leased"] == stats["lane/sim/acct/slow/leased"] == 3
    assert stats["due"] == 6
    assert stats["queued"] == 6
    assert stats["lane/sim/acct/later/due"] == stats["lane/sim/acct/later/queued"] == 4
    assert stats["lane/sim/acct/busy/throttled"] == stats["throttled"] == 1
    assert stats["held"] == 1
    assert stats["aside"] == 1
    assert stats["dead"] == stats["lane/sim/acct/hopeless/dead"] == 1
    assert stats["done"] == 1
    assert stats["open"] == 1
    assert stats["published"] == 2
    assert stats["planned"] == 2
    first = min((await engine.queue("sim/acct/refused")).values())
    assert before - first - 1 <= stats["lane/sim/acct/refused/oldest"] <= after - first + 1
    oldest = max(stats[name] for name in stats if name.startswith("lane/") and name.endswith("/oldest"))
    assert oldest > HOUR / timedelta(milliseconds=1)
    if len(engine.installation.shards) == 1:
        assert stats["oldest"] == oldest
    free.set()
    await running.crash()


async def test_the_numbers_are_kept_current_without_anyone_asking(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = provider.has("a", [thing(f"t{number}", after=HOUR) for number in range(7)])
    await engine.start(provider)
    await engine.publish(one)

    async def current() -> bool:
        stats = await engine.stats()
        return stats.get("queued") == 7 and stats.get("due") == 0 and stats.get("open") == 1

    await engine.until("the survey has seen it", current)
    await engine.jump(HOUR)
    await engine.until_done(one)

    async def emptied() -> bool:
        stats = await engine.stats()
        return stats["queued"] == 0 and stats["open"] == 0 and stats["done"] == 1

    await engine.until("the survey has seen that it is done", emptied)


async def test_every_call_has_its_intent_before_it_and_its_outcome_after_it(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    known: dict[str, bool] = {}

    async def looks(job: Job, batch: Batch) -> Verdict:
        await provider.call(job, batch)
        known[job.id] = any(job.id in entry["jobs"].split() for entry in await engine.audit("intent"))
        return Gone("was there")

    async def finds_nothing(job: Job, batch: Batch) -> Verdict:
        return Gone("was not there")

    provider.always = looks
    provider.answers["absent"] = [finds_nothing]
    one = event("a")
    jobs = await engine.lay(one, [thing(f"t{number}") for number in range(10)] + [thing("absent")])
    running = await engine.start(provider)
    await engine.until_done(one)
    assert known == {jobs[f"t{number}"]: True for number in range(10)}

    intents = [entry for entry in await engine.audit("intent") if entry["lane"] == LANE]
    taken = [job for entry in intents for job in entry["jobs"].split()]
    assert sorted(taken) == sorted(jobs[name] for name in jobs if not name.startswith(one.deletion))
    assert len(intents) < 11, "one for each batch, not for each job"
    assert {entry["worker"] for entry in intents} == {running.name}
    assert [int(entry["count"]) for entry in intents] == [len(entry["jobs"].split()) for entry in intents]

    outcomes: dict[str, str] = {}
    for entry in await engine.audit("outcome"):
        assert entry["worker"] == running.name
        for note, those in entry.items():
            if note not in ("entry", "worker", "lane"):
                outcomes |= dict.fromkeys(those.split(), note)
    for name, job in jobs.items():
        if name == "absent":
            assert outcomes[job] == "gone: was not there"
        elif name.startswith("t"):
            assert outcomes[job] == "gone called: was there"
    assert outcomes[jobs[one.deletion]] == "gone called: released"


async def test_intents_outcomes_and_failures_are_in_the_log_too(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    provider.answers["one"] = [OSError("no")]
    job = (await engine.lay(one, [thing("one")]))["one"]
    structlog.reset_defaults()
    with capture_logs() as logs:
        running = await engine.start(provider)
        await engine.until_done(one)
        await running.stop()
    intents = [entry for entry in logs if entry["event"] == "intent" and job in entry["jobs"]]
    assert len(intents) == 2
    notes = [str(entry) for entry in logs if entry["event"] == "outcome" and job in str(entry["jobs"])]
    assert any("retry called" in note for note in notes)
    assert any("gone called" in note for note in notes)
    (failed,) = [entry for entry in logs if entry["event"] == "attempt"]
    assert (failed["job"], failed["target"], failed["attempt"]) == (job, "one", 1)


async def test_no_number_is_lost_when_many_lanes_are_surveyed_in_steps(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.lay(one, [thing(f"t{number}", f"sim/acct/op{number}") for number in range(700)])
    for shard in engine.installation.shards:
        await shard.refresh_stats()
    stats = await engine.stats()
    assert stats["due"] == stats["queued"] == 700
    assert sum(value for name, value in stats.items() if name.endswith("/due")) == 700
