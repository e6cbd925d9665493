"""Resharding: nothing is lost, doubled or changed, whatever state the data is in and wherever the move is interrupted;
afterwards an ordinary worker finishes everything."""

import asyncio
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
import pytest
from click.testing import CliRunner

from service.cli.main import cli
from service.contract import FINALLY, Event, Found, Gone, Job, Plan, Target
from service.contract.jobs import decode_job_record
from service.engine.calls import RedisCaller
from service.engine.epoch import EpochTracker, ShardCountMismatch
from service.engine.installation import Installation
from service.engine.keys import Keys
from service.engine.plan_layout import lay_out_plan
from service.engine.reshard.reshard import CannotReshard, Reshard
from service.engine.script_arguments import UnplannedEvent, plan_rows
from service.engine.script_replies import Taken
from service.engine.views.deletions import one_deletion
from service.engine.views.timeline import timeline
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider, event, thing
from tests.integration.command_line import operated
from tests.redis_servers import TestServer
from workers.handlers.protocol import Batch
from workers.runtime.retry_policy import outcome_of, settlement

T = TypeVar("T")
INDEXES = ("open", "finished", "alone", "dead", "held", "newer", "opening")
LOOK = "sim/acct/look"
LANES = ("sim/acct/one", "sim/acct/two", "sim/other/three", "sim/acct/stopped", "cluster/c1/release", LOOK)


class MoverDied(Exception):
    """The process that moved the data died here."""


@dataclass
class ShardContents:
    """Everything that matters, without the shard that it is in; what has a new name by right is told by content."""

    deletions: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    jobs: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    targets: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    members: dict[str, dict[bytes, float]] = field(default_factory=dict)
    kept: Counter[Any] = field(default_factory=Counter)
    events: Counter[Any] = field(default_factory=Counter)
    counts: Counter[bytes] = field(default_factory=Counter)


async def look(engine: EngineUnderTest, shards: int) -> ShardContents:
    """Reads all shards, and fails where something is not in the shard of its deletion."""
    keys, client, picture = Keys(engine.settings.redis.prefix, shards), engine.client, ShardContents()

    def belongs(shard: int, deletion: str) -> None:
        assert zlib.crc32(deletion.encode()) % shards == shard, f"{deletion} is in shard {shard} of {shards}"

    for shard in range(shards):
        stem = keys.stem(shard)
        entries = dict(await client.xrange(stem + "events"))
        picture.events.update(tuple(sorted(fields.items())) for fields in entries.values())
        for index in INDEXES:
            for member, score in await client.zrange(stem + index, 0, -1, withscores=True):
                text = member.decode()
                if text.startswith("event:"):
                    entry = text.removeprefix("event:")
                    kept = await client.hgetall(f"{stem}kept:{entry}")
                    why = await client.hgetall(f"{stem}why:{entry}")
                    assert kept
                    assert why
                    picture.kept[index, score, tuple(sorted(kept.items())), tuple(sorted(why.items()))] += 1
                    continue
                belongs(shard, text.split(":", 1)[-1].partition("#")[0].partition("|")[0])
                picture.members.setdefault(index, {})[member] = score
        for lane in LANES:
            for side in ("", ":urgent"):
                name = f"lane:{lane}{side}"
                for member, score in await client.zrange(stem + name, 0, -1, withscores=True):
                    belongs(shard, member.decode().partition("#")[0])
                    picture.members.setdefault(name, {})[member] = score
        for key in await keys_of(engine, stem):
            name = key.decode().removeprefix(stem)
            kind, _, rest = name.partition(":")
            if kind == "deletion":
                belongs(shard, rest)
                record = await client.hgetall(key)
                if record[b"state"] == b"published":
                    assert record.pop(b"entry") in entries, f"{rest} has no event"
                picture.deletions[rest] = record
            elif kind == "job":
                belongs(shard, rest.partition("#")[0])
                picture.jobs[rest] = await client.hgetall(key)
            elif kind == "targets":
                belongs(shard, rest.partition("#")[0])
                picture.targets[rest] = await client.hgetall(key)
        for name, value in (await client.hgetall(stem + "stats")).items():
            if name in (b"published", b"planned", b"taken", b"done", b"gone", b"kept", b"reclaimed"):
                picture.counts[name] += int(value)
    return picture


async def keys_of(engine: EngineUnderTest, stem: str) -> list[bytes]:
    return [key async for key in engine.client.scan_iter(match=stem.replace("{", "[{]") + "*", count=1000)]


@pytest.fixture
async def engine(server: TestServer) -> AsyncIterator[EngineUnderTest]:
    async with operated(server, shards=1) as made:
        yield made


def targets(uid: str) -> list[Target]:
    return [
        thing(f"{uid}-a", LANES[0]),
        thing(f"{uid}-b", LANES[1]),
        thing(f"{uid}-c", LANES[2], chain="other"),
        thing(f"{uid}-d", LANES[0], stage=1),
    ]


async def fill(engine: EngineUnderTest, provider: ScriptedProvider) -> list[Event]:
    """Deletions in every state that there is; the answer are those that must be done in the end."""
    shard = engine.installation.shards[0]

    def has(uid: str, owned: list[Target], **fields: object) -> Event:
        provider.plans[uid] = Plan(owned)
        return event(uid, **fields)

    finished = [has(f"finished-{n}", targets(f"finished-{n}")) for n in range(4)]
    await engine.publish(*finished)
    running = await engine.start(provider)
    await engine.until_done(*finished)
    await running.stop()

    # Something is due later, something is stopped by hand, some of it is background.
    going: list[Event] = []
    for number in range(12):
        uid = f"running-{number}"
        owned = [*targets(uid), thing(f"{uid}-later", LANES[1], chain="later", after=timedelta(seconds=number % 3))]
        if number % 4 == 0:
            owned.append(thing(f"{uid}-stopped", "sim/acct/stopped", chain="stopped"))
        going.append(has(uid, owned, urgent=number % 2))
        await engine.lay(going[-1], owned)
    await shard.pause("sim/acct/stopped", stop=True, who="test")

    # A large plan, and one that was being written when its planner died.
    large = [thing(f"large-{n}", LANES[n % 3]) for n in range(1200)]
    going.append(has("large", large))
    await engine.lay(going[-1], large)
    writing = has("writing", large)
    entry = await engine.deliver(writing)
    first = next(iter(plan_rows(writing, entry, lay_out_plan(writing, large, timedelta(hours=1)))))
    (answer,) = await shard.plan([first])
    assert answer.state == "writing"
    going.append(writing)

    # Targets that were found late, and some that were being added when their worker died.
    going += [await found_late(engine, provider, "late"), await half_found(engine, provider, "half")]

    # Held: a deletion here, and below unreadable events, one of which is still on the stream.
    held = has("held", targets("held"))
    await shard.hold([UnplannedEvent(await engine.deliver(held), "held", "for a person", held.deletion, _flat(held))])

    # Delivered to a planner that is gone, and not delivered at all.
    for number in range(4):
        going.append(has(f"pending-{number}", targets(f"pending-{number}")))
        await engine.deliver(going[-1])
    waiting = [has(f"published-{n}", targets(f"published-{n}")) for n in range(12)]
    await engine.publish(*waiting)
    going += waiting

    await engine.client.xadd(shard.stem + "events", {b"\xff\x00": b"\xfe", b"v": b"1"})
    (unreadable_settlement,) = [e for e, f in await engine.client.xrange(shard.stem + "events") if b"\xff\x00" in f]
    await shard.hold([UnplannedEvent(unreadable_settlement.decode(), "held", "not text", "", [])])
    await engine.client.xadd(shard.stem + "events", {b"\xff\x01": b"\xfd", b"v": b"1"})
    newer = {**event("newer").fields(), "v": 99}
    parked = await engine.client.xadd(shard.stem + "events", newer)
    await shard.hold([UnplannedEvent(parked.decode(), "newer", "too new", "", [])])

    # Stages have ended and their successors are not opened yet.
    for number in range(8):
        uid = f"opening-{number}"
        owned = [thing(f"{uid}-a", "sim/acct/half"), thing(f"{uid}-b", LANES[0], stage=1)]
        going.append(has(uid, owned))
        await plan(engine, going[-1], owned)
    for taken in (await engine.take(going[-1], "hand", "sim/acct/half")).lanes:
        jobs = [
            Job(name, taken.fence, decode_job_record(text))
            for name, text in zip(taken.jobs, taken.records, strict=True)
        ]
        verdicts = [outcome_of(job, Gone(), engine.settings.retry, 0) for job in jobs]
        done = [settlement(job, taken.lane, verdict, called=True) for job, verdict in zip(jobs, verdicts, strict=True)]
        await shard.settle("hand", done)
    assert await engine.client.zcard(shard.stem + "opening") == 8

    # A newer job, and some whose worker died.
    first_jobs = {target: job for job, target in await engine.targets_of(going[0])}
    await engine.rewrite(first_jobs["running-0-a"], v=99)
    await engine.take(going[0], "hand", LANES[0], count=20)
    await engine.jump(timedelta(minutes=5))
    return going


def late(uid: str, numbers: Iterable[int]) -> Found:
    """Of two stages, each in two lanes."""
    targets = [thing(f"{uid}-late-{n}", LANES[n % 2], chain=FINALLY, stage=n // 3) for n in numbers]
    return Found(tuple(targets), f"{len(targets)} more")


async def looking(engine: EngineUnderTest, provider: ScriptedProvider, uid: str) -> tuple[Event, Taken]:
    """A deletion whose last job is in hand, while all others have ended."""
    owned = [thing(f"{uid}-first", "sim/acct/half"), thing(f"{uid}-look", LOOK, chain=FINALLY)]
    one = provider.has(uid, owned)
    await engine.lay(one, owned)
    await engine.settle(await engine.take(one, "hand", "sim/acct/half"), "hand", Gone())
    while (await engine.shard(one).open_stages())[1]:
        pass
    return one, await engine.take(one, "hand", LOOK)


async def found_late(engine: EngineUnderTest, provider: ScriptedProvider, uid: str) -> Event:
    """Five targets were found late, and the first stage of them is open; the job that found them comes later."""
    one, taken = await looking(engine, provider, uid)
    answer = await engine.shard(one).append_all("hand", engine.finding(taken, late(uid, range(5)).targets))
    assert (answer.state, answer.added) == ("added", 5)
    while (await engine.shard(one).open_stages())[1]:
        pass
    return one


async def half_found(engine: EngineUnderTest, provider: ScriptedProvider, uid: str) -> Event:
    """Two of five targets were written when the worker died; the next look finds some of them, and another one."""
    one, taken = await looking(engine, provider, uid)
    found, state = engine.finding(taken, late(uid, range(5)).targets), ""
    while state != "writing":
        state = (await engine.shard(one).append("hand", found, 0, 2)).state

    async def look_again(_job: Job, _batch: Batch) -> Found:
        return late(uid, (1, 2, 3, 5))

    provider.answers[f"{uid}-look"] = [look_again]
    return one


def removed_late(provider: ScriptedProvider, uid: str) -> list[str]:
    return [name for name in provider.called if name.startswith(f"{uid}-late-")]


def _flat(one: Event) -> list[Any]:
    return [part for pair in one.fields().items() for part in pair]


async def plan(engine: EngineUnderTest, one: Event, owned: list[Target]) -> None:
    """Like `EngineUnderTest.lay`, but without opening what others have left to open."""
    await engine.publish(one)
    arranged = lay_out_plan(one, owned, timedelta(hours=1))
    answer = await engine.shard(one).plan_whole(one, (await engine.deletion(one))["entry"], arranged)
    assert answer.state == "planned"


async def stray(engine: EngineUnderTest, shards: int) -> None:
    """Events that name no deletion, one kept and one on the stream, in the last shard there is."""
    shard = (await install(engine, shards)).shards[-1]
    for number in range(2):
        entry = await engine.client.xadd(shard.stem + "events", {b"\xff\x02": b"\xfc%d" % number, b"v": b"1"})
        if number == 0:
            assert await shard.hold([UnplannedEvent(entry.decode(), "held", "not text", "", [])]) == 1


async def give_back(engine: EngineUnderTest) -> None:
    """What dead workers held is given back by the move itself; here it is done before the first picture."""
    while (await engine.installation.shards[0].reclaim(deaths=3, silence=timedelta(seconds=10))).given_back:
        pass


async def install(engine: EngineUnderTest, shards: int) -> Installation:
    redis = msgspec.structs.replace(engine.settings.redis, shards=shards)
    return engine.install(msgspec.structs.replace(engine.settings, redis=redis))


def as_told(picture: ShardContents) -> Any:
    return (
        picture.deletions, picture.jobs, picture.targets, picture.members, picture.kept, picture.events,
        picture.counts,
    )  # fmt: skip


async def finish(engine: EngineUnderTest, provider: ScriptedProvider, going: list[Event], shards: int) -> None:
    """An ordinary worker with the new count drains everything."""
    engine.change("redis", shards=shards)
    engine.installation = await install(engine, shards)
    await EpochTracker(engine.installation.shards).check()
    for shard in engine.installation.shards:
        assert await engine.client.hkeys(shard.stem + "paused") == [b"sim/acct/stopped"]
        await shard.pause("sim/acct/stopped", stop=False, who="test")
    for member in await engine.members("newer"):
        if member.startswith("job:"):
            await engine.rewrite(member.removeprefix("job:"), v=1)
    engine.change("worker", plan_claim=timedelta(milliseconds=200))
    await engine.start(provider)
    await engine.tidy()
    await engine.until_done(*going, within=timedelta(seconds=100))
    assert set(await engine.members("held")) >= {f"deletion:{event('held').deletion}"}
    assert not [lane for lane in LANES if await engine.queue(lane)]
    assert sorted(removed_late(provider, "late")) == [f"late-late-{n}" for n in range(5)]
    assert sorted(removed_late(provider, "half")) == [f"half-late-{n}" for n in (1, 2, 3, 5)]


@pytest.mark.long
async def test_data_in_every_state_moves_to_four_shards_and_to_three_and_is_finished_there(
    engine: EngineUnderTest,
) -> None:
    provider = ScriptedProvider()
    going = await fill(engine, provider)
    await give_back(engine)
    before = as_told(await look(engine, 1))
    done = await Reshard(await install(engine, 1), 4).run("test")
    assert (done.before, done.after) == (1, 4)
    assert done.moved > 0
    assert as_told(await look(engine, 4)) == before
    used = [
        shard for shard in range(4) if await engine.client.zcard(Keys(engine.settings.redis.prefix).of(shard, "open"))
    ]
    assert used == [0, 1, 2, 3]
    await stray(engine, 4)
    before = as_told(await look(engine, 4))
    await Reshard(await install(engine, 4), 3).run("test")
    assert as_told(await look(engine, 3)) == before
    last = Keys(engine.settings.redis.prefix).stem(3)
    left = {key.decode().removeprefix(last) for key in await keys_of(engine, last)}
    assert {name for name in left if not name.startswith("answer:")} <= {"audit"}
    await finish(engine, provider, going, 3)
    assert await engine.decisions("resharded") == ["1 to 4", "4 to 3"] * 3


async def told_of(engine: EngineUnderTest, shards: int, deletions: list[Event]) -> dict[str, list[tuple[str, str]]]:
    """What the audit tells of each deletion, when there are so many shards."""
    installation, told = await install(engine, shards), {}
    for one in deletions:
        view = await one_deletion(installation, one.deletion)
        assert view is not None
        moments = [moment async for page in timeline(installation, view) for moment in page.moments]
        told[one.uid] = sorted((moment.what, moment.job) for moment in moments)
    return told


async def test_the_timeline_of_a_deletion_is_complete_after_a_move_though_the_audit_stays(
    engine: EngineUnderTest,
) -> None:
    provider = ScriptedProvider()
    done, going = [event(f"done-{n}") for n in range(6)], [event(f"going-{n}") for n in range(6)]
    await engine.publish(*done)
    running = await engine.start(provider)
    await engine.until_done(*done)
    await running.stop()
    for one in going:
        await engine.lay(one, [thing("first", LANES[0]), thing("second", LANES[1], stage=1)])
        await engine.settle(await engine.take(one, "hand", LANES[0]), "hand", Gone())
    before = await told_of(engine, 1, done + going)
    assert all(len(moments) >= 2 for moments in before.values())
    await engine.jump(timedelta(minutes=5))

    for here, there in ((1, 4), (4, 2), (2, 3)):
        await Reshard(await install(engine, here), there).run("test")
        assert await told_of(engine, there, done + going) == before

    # What happens from now on is told beside it, wherever the one and the other is.
    engine.change("redis", shards=3)
    engine.installation = await install(engine, 3)
    await EpochTracker(engine.installation.shards).check()
    await engine.start(provider)
    await engine.until_done(*going)
    after = await told_of(engine, 3, done + going)
    for one in going:
        assert set(after[one.uid]) > set(before[one.uid])
    assert {uid: after[uid] for uid in before if uid.startswith("done")} == {
        uid: moments for uid, moments in before.items() if uid.startswith("done")
    }


async def test_the_audit_of_a_shard_that_comes_back_does_not_end_with_what_it_had_before(
    engine: EngineUnderTest,
) -> None:
    await Reshard(await install(engine, 1), 3).run("test")
    await Reshard(await install(engine, 3), 1).run("test")
    keys = Keys(engine.settings.redis.prefix)
    assert await engine.client.pttl(keys.of(2, "audit")) > 0
    await Reshard(await install(engine, 1), 3).run("test")
    assert [await engine.client.pttl(keys.of(shard, "audit")) for shard in range(3)] == [-1, -1, -1]


class DyingCaller(RedisCaller):
    """The process dies when the server has carried out so many of its calls; the last reply is lost."""

    def __init__(self, installation: Installation, offset: Callable[[], timedelta], calls: int) -> None:
        super().__init__(installation.connections.client, clock_offset=offset)
        self._calls = calls

    async def move(self, *args: Any, **options: Any) -> bytes:
        return await self._until_dead(super().move(*args, **options))

    async def command(self, *args: Any, **options: Any) -> Any:
        return await self._until_dead(super().command(*args, **options))

    async def _until_dead(self, call: Coroutine[Any, Any, T]) -> T:
        if self._calls <= 0:
            call.close()
            raise MoverDied
        self._calls -= 1
        answer = await call
        if self._calls == 0:
            raise MoverDied
        return answer


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("closely", "often"), [(2, 10), (8, 25)])
async def test_a_move_that_dies_anywhere_is_finished_by_running_it_again(
    embedded_server: TestServer, closely: int, often: int
) -> None:
    engine = EngineUnderTest(embedded_server.server, embedded_server.settings(shards=1))
    await engine.arrive()
    try:
        provider = ScriptedProvider()
        going = await fill(engine, provider)
        await give_back(engine)
        counts = [1, 4, 3, 5, 1]
        deaths, calls, position, here = 0, 1, 0, 1
        while True:
            here, there = counts[position % 4], counts[position % 4 + 1]
            await stray(engine, here)
            before = as_told(await look(engine, here))
            died = await _die(engine, here, there, calls)
            if died:
                deaths += 1
                await _check_marks(engine, here, there)
                # And once more in the middle of finishing it.
                await _die(engine, here, there, max(1, calls // 2))
                await _end(engine, here, there)
            assert as_told(await look(engine, there)) == before, f"died at call {calls} from {here} to {there}"
            position += 1
            if not died:
                break
            calls += max(1, calls // closely)
        assert deaths > often
        await _end(engine, there, 3)
        await finish(engine, provider, going, 3)
    finally:
        await engine.close()


async def _die(engine: EngineUnderTest, here: int, there: int, calls: int) -> bool:
    """Whether it died before it was over."""
    installation = await install(engine, here)
    installation.caller = DyingCaller(installation, lambda: engine.offset, calls)
    try:
        await Reshard(installation, there).run("test")
    except MoverDied:
        return True
    except CannotReshard:
        # The death before was after the last step.
        return False
    return False


async def _check_marks(engine: EngineUnderTest, here: int, there: int) -> None:
    """Once it has begun, no worker runs and no other move begins."""
    if (await engine.meta()).get("resharding") is None:
        return
    with pytest.raises(ShardCountMismatch, match=f"run `knell reshard --to {there}` again"):
        await EpochTracker((await install(engine, here)).shards).check()
    with pytest.raises(CannotReshard, match=f"reshard --to {there}"):
        await Reshard(await install(engine, here), there + 1).run("test")


async def _end(engine: EngineUnderTest, here: int, there: int) -> None:
    """Run it, unless there is nothing left to do."""
    move = Reshard(await install(engine, here), there)
    if await move.stored() != (there, False):
        await move.run("test")


async def test_a_running_worker_is_named_and_nothing_is_touched(engine: EngineUnderTest) -> None:
    running = await engine.start(name="busy-one")
    key = engine.installation.shards[0].stem + "workers"

    async def heard() -> Any:
        return await engine.client.zscore(key, "busy-one")

    await engine.until("the worker is heard of", heard)
    with pytest.raises(CannotReshard, match="worker busy-one was heard of"):
        await Reshard(engine.installation, 2).run("test")
    assert "resharding" not in await engine.meta()
    await running.stop()
    await Reshard(engine.installation, 2).run("test")
    assert (await engine.meta())["shards"] == "2"


async def test_leases_that_still_run_count_as_work_in_progress(engine: EngineUnderTest) -> None:
    going = event("a")
    await engine.lay(going, [thing("one", LANES[0])])
    await engine.take(going, "silent", LANES[0], lease=timedelta(minutes=2))
    with pytest.raises(CannotReshard, match=f"1 jobs of lane {LANES[0]} are still leased"):
        await Reshard(engine.installation, 2).run("test")
    assert "resharding" not in await engine.meta()


def test_the_command_moves_the_data_and_says_what_to_set(
    embedded_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = embedded_server.settings()
    monkeypatch.setenv("KNELL_REDIS_URL", str(settings.url))
    monkeypatch.setenv("KNELL_REDIS_PREFIX", settings.prefix)

    async def publish() -> None:
        engine = EngineUnderTest(embedded_server.server, settings)
        try:
            await engine.arrive()
            await engine.publish(*(event(str(number)) for number in range(20)))
        finally:
            await engine.close()

    asyncio.run(publish())
    asked = CliRunner().invoke(cli, ["reshard", "--to", "3"], input="n\n")
    assert asked.exit_code == 1
    assert "from 1 to 3 shards" in asked.output
    moved = CliRunner().invoke(cli, ["reshard", "--to", "3", "--yes"])
    assert moved.exit_code == 0, moved.output
    assert "set redis.shards (KNELL_REDIS_SHARDS) to 3" in moved.stdout
    assert "audit so far stays under its old keys" in moved.stdout
    again = CliRunner().invoke(cli, ["reshard", "--to", "3", "--yes"])
    assert again.exit_code == 1
    assert "kept in 3 shards already" in again.output
