"""Test cases for every call of the engine: the state that it needs, and the call itself.

Each case runs twice, once undisturbed and once with its reply lost; both must end in the same state."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from service.contract import FINALLY, Draw, Event, Found, Gone, Job, Limit, Target, decode_job_record
from service.engine.budgets import Budgets, LimitFeedback, ReservationRequest
from service.engine.late_targets import lay_out_late_targets
from service.engine.plan_layout import PlanLayout, lay_out_plan
from service.engine.reshard.units import import_units, remove_units
from service.engine.script_arguments import (
    JobSettlement,
    LaneRequest,
    LateTargets,
    UnplannedEvent,
    event_fields,
    plan_rows,
)
from service.engine.shard import Shard
from service.settings import RetrySettings
from tests.properties.rig import RecordingCaller
from workers.runtime.retry_policy import outcome_of, settlement

LANE, PLACE = "sim/account/remove", "sim/account"
LEASE = timedelta(seconds=60)
LIMIT = Limit.bucket("calls", 10, rate=0.01)
EVENT = Event(cluster="c1", resource="things", uid="u0", name="n0", source="s")
OTHER = Event(cluster="c1", resource="things", uid="u1", name="n1", source="s", urgent=0)
ASK = ReservationRequest(LANE, 3, 3, 0, (Draw(LIMIT),))


@dataclass(slots=True)
class CaseInstallation:
    """One installation's keys, reached over one connection. `kept` is what the errand's parts tell each other."""

    caller: RecordingCaller
    shard: Shard
    budgets: Budgets
    kept: dict[str, Any] = field(default_factory=dict)

    async def hand(self, command: str, name: str, *words: Any) -> Any:
        return await self.caller.client.execute_command(command, self.shard.stem + name, *words)

    async def deliver(self, *events: Event) -> list[str]:
        """Published and read by a planner; the answer are the entries."""
        answers = await self.shard.publish(events)
        await self.caller.client.execute_command(
            "XREADGROUP", "GROUP", "planners", "p0", "STREAMS", self.shard.stem + "events", ">"
        )
        return [answer.entry for answer in answers]

    async def lay(self) -> None:
        """A deletion of three jobs in one lane, planned and open."""
        (entry,) = await self.deliver(EVENT)
        await self.shard.plan_whole(EVENT, entry, arranged(3))

    async def take(self, again: int = 0) -> list[JobSettlement]:
        """Two jobs in a worker's hands, and what it would say of them."""
        await self.lay()
        taken = await self.shard.take("w0", LEASE, [LaneRequest(LANE, 2, 2, 5, again)])
        self.kept["fence"] = taken.lanes[0].fence
        found = []
        for name, text in zip(taken.lanes[0].jobs, taken.lanes[0].records, strict=True):
            job = Job(name, taken.lanes[0].fence, decode_job_record(text))
            found.append(settlement(job, LANE, outcome_of(job, Gone(), RetrySettings(), 0), called=True))
        return found


def arranged(count: int) -> PlanLayout:
    targets = [Target(kind="thing", id=f"t{number}", lane=LANE) for number in range(count)]
    return lay_out_plan(EVENT, targets, timedelta(hours=1))


async def _nothing(_: CaseInstallation) -> None:
    pass


@dataclass(frozen=True, slots=True)
class MoveCase:
    act: Callable[[CaseInstallation], Awaitable[Any]]
    prepare: Callable[[CaseInstallation], Awaitable[None]] = _nothing


async def _deliver(site: CaseInstallation) -> None:
    site.kept["entries"] = await site.deliver(EVENT, OTHER)


async def _opening(site: CaseInstallation) -> None:
    """A plan written in chunks leaves its first stage opening."""
    (entry,) = await site.deliver(EVENT)
    plan = arranged(3)
    (whole,) = plan_rows(EVENT, entry, plan)
    begun = whole._replace(jobs=plan.jobs[:2], final=False, stages=[])
    (answer,) = await site.shard.plan([begun])
    await site.shard.plan([whole._replace(number=answer.number, offset=2, jobs=plan.jobs[2:])])


async def _taken(site: CaseInstallation) -> None:
    site.kept["items"] = await site.take()


async def _dry(site: CaseInstallation) -> None:
    await site.take(again=3_600_000)


async def _ran_out(site: CaseInstallation) -> None:
    await site.take()
    site.caller.clock.jump(2 * LEASE)


async def _misplaced(site: CaseInstallation) -> None:
    await site.lay()
    await site.hand("ZREM", f"lane:{LANE}:urgent", f"{EVENT.deletion}#1.0")


async def _entry_gone(site: CaseInstallation) -> None:
    (entry,) = await site.deliver(EVENT)
    await site.hand("XDEL", "events", entry)


async def _held(site: CaseInstallation) -> None:
    (entry,) = await site.deliver(EVENT)
    await site.shard.hold([UnplannedEvent(entry, "held", "why", EVENT.deletion, event_fields(EVENT))])


async def _held_for_now(site: CaseInstallation) -> None:
    (entry,) = await site.deliver(EVENT)
    await site.shard.hold([UnplannedEvent(entry, "held", "why", EVENT.deletion, event_fields(EVENT), 60_000)])


async def _done(site: CaseInstallation) -> None:
    (entry,) = await site.deliver(EVENT)
    await site.shard.plan_whole(EVENT, entry, arranged(0))
    lane = "cluster/c1/release"
    taken = await site.shard.take("w0", LEASE, [LaneRequest(lane, 1, 1, 1)])
    job = Job(taken.lanes[0].jobs[0], taken.lanes[0].fence, decode_job_record(taken.lanes[0].records[0]))
    await site.shard.settle("w0", [settlement(job, lane, outcome_of(job, Gone(), RetrySettings(), 0), called=True)])
    site.caller.clock.jump(timedelta(hours=1))


async def _reserved(site: CaseInstallation) -> None:
    site.kept["reserved"] = await site.budgets.reserve(PLACE, 0.1, [ASK])


async def _resharding(site: CaseInstallation) -> None:
    await site.hand("HSET", "meta", "resharding", 2, "resharding_from", 1)
    await site.hand("HSET", "moved", "0:1-1", "1-1")


async def _finding(site: CaseInstallation) -> None:
    """A job of the chain `finally` in a worker's hands, which has found two targets; one of them is known."""
    (entry,) = await site.deliver(EVENT)
    planned = [Target(kind="thing", id="t0", lane=LANE, chain=FINALLY)]
    await site.shard.plan_whole(EVENT, entry, lay_out_plan(EVENT, planned, timedelta(hours=1)))
    taken = await site.shard.take("w0", LEASE, [LaneRequest(LANE, 1, 1, 5)])
    job = Job(taken.lanes[0].jobs[0], taken.lanes[0].fence, decode_job_record(taken.lanes[0].records[0]))
    late = tuple(Target(kind="thing", id=f"t{number}", lane=LANE, chain=FINALLY) for number in (0, 1))
    item = settlement(job, LANE, outcome_of(job, Found(late), RetrySettings(), 0), called=False)
    site.kept["late"] = LateTargets(item, lay_out_late_targets(late, 1, timedelta(hours=1)))


async def _import_units(site: CaseInstallation) -> None:
    """Two jobs, one event and one sum come from another shard."""
    fields = [part for pair in (("v", 1), ("uid", "u9")) for part in pair]
    await import_units(
        site.shard,
        hashes=[(b"deletion:d", packed("state", "published", "entry", "1-1"))],
        members=[(b"lane:sim/a/b", packed(5, "d#1.0", 6, "d#1.1")), (b"open", packed(5, "d"))],
        lanes=[b"sim/a/b"],
        events=[(b"1:1-1", b"d", packed(*fields))],
        sums=[(b"done", 4)],
        origin=1,
    )


async def _remove_units(site: CaseInstallation) -> None:
    await remove_units(
        site.shard,
        keys=[f"deletion:{EVENT.deletion}".encode(), f"job:{EVENT.deletion}#1".encode()],
        members=[(b"open", [EVENT.deletion.encode()]), (f"lane:{LANE}:urgent".encode(), [_job(0).encode()])],
        lanes=[LANE.encode()],
    )


GUARD = [["u0", 0], ["u1", 0], ["u0", 0]]


async def _ask_guard(site: CaseInstallation) -> None:
    await site.caller.move("guard", site.shard.stem + "meta", site.shard.stem, ["s", GUARD, 1, 60_000, "why"])


def packed(*parts: str | int) -> list[Any]:
    return [msgspec.Raw(msgspec.msgpack.encode(part)) for part in parts]


def _job(number: int) -> str:
    return f"{EVENT.deletion}#1.{number}"


ERRANDS: dict[str, MoveCase] = {
    "publish": MoveCase(lambda site: site.shard.publish([EVENT, OTHER, EVENT])),
    "plan": MoveCase(lambda site: site.shard.plan_whole(EVENT, site.kept["entries"][0], arranged(3)), _deliver),
    "open_stages": MoveCase(lambda site: site.shard.open_stages(2), _opening),
    "due_lanes": MoveCase(lambda site: site.shard.due_lanes(5), CaseInstallation.lay),
    "take": MoveCase(
        lambda site: site.shard.take("w0", LEASE, [LaneRequest(LANE, 2, 2, 5, 4000)]), CaseInstallation.lay
    ),
    "settle": MoveCase(lambda site: site.shard.settle("w0", site.kept["items"]), _taken),
    "append": MoveCase(lambda site: site.shard.append_all("w0", site.kept["late"]), _finding),
    "renew": MoveCase(
        lambda site: site.shard.renew("w0", LEASE, [(LANE, site.kept["fence"]), (LANE, 7)], LEASE), _taken
    ),
    "reclaim": MoveCase(lambda site: site.shard.reclaim(silence=LEASE), _ran_out),
    "claim": MoveCase(lambda site: site.shard.claim("w1", silent=timedelta(0), silence=LEASE), _deliver),
    "requeue": MoveCase(lambda site: site.shard.requeue(grace=timedelta(0)), _misplaced),
    "repair": MoveCase(lambda site: site.shard.repair(grace=timedelta(0)), _entry_gone),
    "hold": MoveCase(
        lambda site: site.shard.hold(
            [UnplannedEvent(site.kept["entries"][0], "held", "why", EVENT.deletion, event_fields(EVENT))]
        ),
        _deliver,
    ),
    "unhold": MoveCase(
        lambda site: site.shard.unhold(
            f"deletion:{EVENT.deletion}", replay=True, who="hand", event=event_fields(EVENT)
        ),
        _held,
    ),
    "retry": MoveCase(lambda site: site.shard.retry(_job(0), "hand"), CaseInstallation.lay),
    "abandon": MoveCase(lambda site: site.shard.abandon(_job(0), "hand"), _taken),
    "pause": MoveCase(lambda site: site.shard.pause(LANE, stop=True, who="hand"), CaseInstallation.lay),
    "wake_lanes": MoveCase(lambda site: site.shard.wake_lanes(PLACE), _dry),
    "expire": MoveCase(
        lambda site: site.shard.expire(
            finished=LEASE, audit=timedelta(days=1), audit_entries=100, lanes=timedelta(days=1)
        ),
        _done,
    ),
    "refresh_stats": MoveCase(lambda site: site.shard.refresh_stats(), _taken),
    "check_epoch": MoveCase(lambda site: site.shard.check_epoch("another history", "an epoch")),
    "import_units": MoveCase(_import_units),
    "remove_units": MoveCase(_remove_units, CaseInstallation.lay),
    "finish_reshard": MoveCase(
        lambda site: site.caller.move("finish_reshard", site.shard.stem + "meta", site.shard.stem, [2, 1, "hand"]),
        _resharding,
    ),
    "guard": MoveCase(_ask_guard),
    "guard_release": MoveCase(
        lambda site: site.caller.move("guard_release", site.shard.stem + "meta", site.shard.stem, ["s", "hand"]),
        _ask_guard,
    ),
    "save_lease_counter": MoveCase(
        lambda site: site.caller.move(
            "save_lease_counter", site.shard.stem + "meta", site.shard.stem, ["c1/ns/lease", "u1", 7]
        )
    ),
    "save_restore": MoveCase(
        lambda site: site.caller.move("save_restore", site.shard.stem + "meta", site.shard.stem, ["c1", "", "why", ""])
    ),
    "register_cluster": MoveCase(lambda site: site.shard.register_cluster("here", "u1", ["there"], pinned=True)),
    "save_keep_decision": MoveCase(lambda site: site.shard.save_keep_decision("aws/1/eu-west-1/prod", "u1", "{}")),
    "read_deletions": MoveCase(
        lambda site: site.shard.read_deletions([EVENT.deletion, "unknown"], ["state", "name"]), CaseInstallation.lay
    ),
    "recheck": MoveCase(lambda site: site.shard.recheck([(EVENT.deletion, 0), ("unknown", 0)], "why"), _held_for_now),
    "withdraw": MoveCase(lambda site: site.shard.withdraw(EVENT.deletion, "why", 2), _taken),
    "reserve": MoveCase(lambda site: site.budgets.reserve(PLACE, 0.1, [ASK])),
    "return_tokens": MoveCase(
        lambda site: site.budgets.return_unused(PLACE, site.kept["reserved"].corrections, [(LIMIT, 2.0)]), _reserved
    ),
    "correct": MoveCase(
        lambda site: site.budgets.correct(PLACE, [LimitFeedback(LIMIT, 2, remaining=5, pause=3000)]), _reserved
    ),
}
