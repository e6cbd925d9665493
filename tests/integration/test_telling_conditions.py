"""The condition of an object: what is in the way of its deletion now, what needs a person, and what is paused."""

from datetime import timedelta

import pytest

from service.contract import Event
from service.contract.names import FINALIZER
from service.local.provider.world import Resource, Seed
from service.stream.rows import flat
from tests.integration.staged import ACCOUNT, Stage
from tests.integration.told import OTHER, condition, stage, until_condition, until_event

__all__ = ["stage"]


async def blocked(stage: Stage) -> Event:
    """The deletion of `w`, whose resource `w-0` is used by `vm`."""
    stage.make("w", 1, finalizers=[FINALIZER, OTHER])
    stage.provider.world.add(
        Seed(resources=(Resource(account=ACCOUNT, id="vm", owner="x"),
                        Resource(account=ACCOUNT, id="w-0", owner="tag", blocked_by=("vm",))))
    )  # fmt: skip
    await stage.publish(one := stage.event(stage.delete("w")))
    return one


async def test_the_condition_names_what_is_in_the_way_now_and_nothing_that_is_gone(stage: Stage) -> None:
    stage.change("retry", blocked_base=timedelta(seconds=1), blocked_cap=timedelta(seconds=1))
    stage.make("w", 2, finalizers=[FINALIZER, OTHER])
    stage.provider.world.add(
        Seed(resources=tuple(Resource(account=ACCOUNT, id=f"vm-{number}", owner="x") for number in (0, 1)) + tuple(
            Resource(account=ACCOUNT, id=f"w-{number}", owner="tag", blocked_by=(f"vm-{number}",)) for number in (0, 1)
        ))
    )  # fmt: skip
    await stage.publish(one := stage.event(stage.delete("w")))
    await stage.work()
    await until_condition(stage, "w", "CleanupWaiting", "waiting for 2 resources", "w-0", "w-1")
    stage.provider.world.standing.pop((ACCOUNT, "vm-1"))
    told = await until_condition(stage, "w", "CleanupWaiting", "waiting for 1 resource: w-0: blocked: vm-0")
    assert "w-1" not in told["message"]
    stage.provider.world.standing.pop((ACCOUNT, "vm-0"))
    await stage.until_done(one)
    await until_condition(stage, "w", "CleanupDone", "2 of 2 resources removed")


async def test_the_condition_follows_a_reason_that_changes_though_it_is_held_as_before(stage: Stage) -> None:
    """It is not planned again by itself in this hour: what is said, the second hold has said."""
    stage.change("retry", base=timedelta(hours=1), cap=timedelta(hours=1))
    one = await stage.going("w", annotations={"knell.dev/deletion-policy": "remove"})
    await stage.work()
    await until_condition(stage, "w", "CleanupHeld", "allowed: delete, retain")
    stage.annotate("w", **{"knell.dev/deletion-policy": None, "knell.dev/prevent-delete": "true"})
    name = f"deletion:{one.deletion}"
    assert await stage.shard(one).unhold(name, replay=True, who="tests", event=list(flat(one))) == "replayed"
    told = await until_condition(stage, "w", "CleanupHeld", "knell.dev/prevent-delete")
    assert "allowed" not in told["message"]
    assert int((await stage.deletion(one))["holds"]) == 2


async def test_the_condition_says_that_everything_is_paused_until_it_is_not(stage: Stage) -> None:
    stage.change("retry", blocked_base=timedelta(seconds=1), blocked_cap=timedelta(seconds=1))
    one = await blocked(stage)
    await stage.work()
    await until_condition(stage, "w", "CleanupWaiting", "blocked: vm")
    await stage.stop_lanes()
    await until_condition(stage, "w", "CleanupPaused", "everything is paused by test since", "`knell resume`", "w-0")
    await stage.going("x", 2, finalizers=[FINALIZER, OTHER])
    await until_condition(stage, "x", "CleanupPaused", "everything is paused by test since")
    await stage.free_lanes()
    told = await until_condition(stage, "w", "CleanupWaiting", "blocked: vm")
    assert "paused" not in told["message"]
    await until_condition(stage, "x", "CleanupDone", "2 of 2 resources removed")
    stage.provider.world.standing.pop((ACCOUNT, "vm"))
    await stage.until_done(one)


@pytest.mark.long
async def test_a_pause_that_ended_while_no_worker_ran_is_no_longer_told(stage: Stage) -> None:
    """Nothing of it is tried again in these hours: what is said then, the end of the pause has said."""
    stage.change("retry", blocked_base=timedelta(hours=1000), blocked_cap=timedelta(hours=1000))
    await blocked(stage)
    first = await stage.work()
    await until_condition(stage, "w", "CleanupWaiting", "blocked: vm")
    await stage.stop_lanes()
    await until_condition(stage, "w", "CleanupPaused", "everything is paused by test since")
    await first.stop()
    await stage.free_lanes()
    await stage.work()
    told = await until_condition(stage, "w", "CleanupWaiting", "blocked: vm")
    assert "paused" not in told["message"]


async def test_a_condition_that_could_not_be_written_is_written_once_it_can_be(stage: Stage) -> None:
    stage.front.refuse(503, lambda method, path: path.endswith("/status"))
    await stage.going("w", annotations={"knell.dev/deletion-policy": "remove"})
    await stage.work()

    async def refused() -> bool:
        return any(path.endswith("/status") for _, path in stage.front.refused)

    await stage.until("a condition was refused", refused)
    stage.front.pass_on()
    await until_condition(stage, "w", "CleanupHeld", "allowed: delete, retain")


async def test_a_job_that_was_set_aside_is_told(stage: Stage) -> None:
    one = await stage.going("w", 2, finalizers=[FINALIZER, OTHER])
    await stage.stop_lanes()
    first = await stage.work()
    await until_condition(stage, "w", "CleanupPaused")
    await first.stop()
    job = next(iter(await stage.jobs_of(one)))
    lane = f"{stage.shard(one).stem}lane:{(await stage.job(job))['lane']}"
    for queue in (lane, f"{lane}:urgent"):
        await stage.client.zrem(queue, job)
    await stage.rewrite(job, state="aside", last_error="its worker died 3 times while it was tried alone")
    await stage.free_lanes()
    await stage.work()
    await until_condition(stage, "w", "CleanupHeld", "1 resource needs a person", "its worker died 3 times")


async def test_what_waits_by_itself_is_told_apart_from_what_needs_a_person(stage: Stage) -> None:
    """A job that is held for its own reason, beside one that only waits: a person is called. Once that has gone, the
    condition does not name it any more, though nothing becomes of the other in this hour."""
    stage.change("retry", refused_recheck=timedelta(hours=1), blocked_base=timedelta(seconds=1))
    stage.make("w", 2)
    stage.provider.world.add(
        Seed(resources=(Resource(account=ACCOUNT, id="vm", owner="x"),
                        Resource(account=ACCOUNT, id="w-0", owner="tag", blocked_by=("vm",)),
                        Resource(account=ACCOUNT, id="w-1", owner="somebody else")))
    )  # fmt: skip
    await stage.publish(one := stage.event(stage.delete("w")))
    await stage.work()
    told = await until_condition(stage, "w", "CleanupHeld", "1 resource needs a person: w-1", "waiting for 1 resource")
    assert told["message"].index("w-1") < told["message"].index("w-0")
    assert (await until_event(stage, one.uid, "CleanupHeld"))[0] == "Warning"
    stage.provider.world.standing.pop((ACCOUNT, "vm"))

    async def names_only_the_other() -> bool:
        found = condition(stage, "w")
        return found is not None and "w-1" in found["message"] and "w-0" not in found["message"]

    await stage.until("the condition names what is in the way now", names_only_the_other)
