"""Condition on an object: the current obstacles of its deletion, what needs an operator, and what is paused."""

from datetime import timedelta

import pytest

from service.contract import Event
from service.contract.names import FINALIZER
from service.engine.script_arguments import event_fields
from tests.integration.events_and_conditions import OTHER, condition, judged, until_condition, until_event
from tests.integration.judged_source import ACCOUNT, JudgedSource
from tests.simulated.provider_state import Seed, SeededResource

pytestmark = pytest.mark.long

__all__ = ["judged"]


async def blocked(judged: JudgedSource) -> Event:
    """The deletion of `w`, whose resource `w-0` is used by `vm`."""
    judged.make("w", 1, finalizers=[FINALIZER, OTHER])
    judged.provider.state.add(
        Seed(resources=(SeededResource(account=ACCOUNT, id="vm", owner="x"),
                        SeededResource(account=ACCOUNT, id="w-0", owner="tag", blocked_by=("vm",))))
    )  # fmt: skip
    await judged.publish(one := judged.event(judged.delete("w")))
    return one


async def test_the_condition_names_what_is_in_the_way_now_and_nothing_that_is_gone(judged: JudgedSource) -> None:
    judged.change("retry", blocked_base=timedelta(seconds=1), blocked_cap=timedelta(seconds=1))
    judged.make("w", 2, finalizers=[FINALIZER, OTHER])
    judged.provider.state.add(
        Seed(resources=tuple(
            SeededResource(account=ACCOUNT, id=f"vm-{number}", owner="x") for number in (0, 1)
        ) + tuple(
            SeededResource(account=ACCOUNT, id=f"w-{number}", owner="tag", blocked_by=(f"vm-{number}",))
            for number in (0, 1)
        ))
    )  # fmt: skip
    await judged.publish(one := judged.event(judged.delete("w")))
    await judged.work()
    await until_condition(judged, "w", "CleanupWaiting", "waiting for 2 resources", "w-0", "w-1")
    judged.provider.state.existing.pop((ACCOUNT, "vm-1"))
    told = await until_condition(judged, "w", "CleanupWaiting", "waiting for 1 resource: w-0: blocked: vm-0")
    assert "w-1" not in told["message"]
    judged.provider.state.existing.pop((ACCOUNT, "vm-0"))
    await judged.until_done(one)
    await until_condition(judged, "w", "CleanupDone", "2 of 2 resources removed")


async def test_the_condition_follows_a_reason_that_changes_though_it_is_held_as_before(judged: JudgedSource) -> None:
    """It is not planned again by itself in this hour: what is said, the second hold has said."""
    judged.change("retry", base=timedelta(hours=1), cap=timedelta(hours=1))
    one = await judged.going("w", annotations={"knell.dev/deletion-policy": "remove"})
    await judged.work()
    await until_condition(judged, "w", "CleanupHeld", "allowed: delete, retain")
    judged.annotate("w", **{"knell.dev/deletion-policy": None, "knell.dev/prevent-delete": "true"})
    name = f"deletion:{one.deletion}"
    assert await judged.shard(one).unhold(name, replay=True, who="tests", event=list(event_fields(one))) == "replayed"
    told = await until_condition(judged, "w", "CleanupHeld", "knell.dev/prevent-delete")
    assert "allowed" not in told["message"]
    assert int((await judged.deletion(one))["holds"]) == 2


async def test_the_condition_says_that_everything_is_paused_until_it_is_not(judged: JudgedSource) -> None:
    judged.change("retry", blocked_base=timedelta(seconds=1), blocked_cap=timedelta(seconds=1))
    one = await blocked(judged)
    await judged.work()
    await until_condition(judged, "w", "CleanupWaiting", "blocked: vm")
    await judged.stop_lanes()
    await until_condition(judged, "w", "CleanupPaused", "everything is paused by test since", "`knell resume`", "w-0")
    await judged.going("x", 2, finalizers=[FINALIZER, OTHER])
    await until_condition(judged, "x", "CleanupPaused", "everything is paused by test since")
    await judged.free_lanes()
    told = await until_condition(judged, "w", "CleanupWaiting", "blocked: vm")
    assert "paused" not in told["message"]
    await until_condition(judged, "x", "CleanupDone", "2 of 2 resources removed")
    judged.provider.state.existing.pop((ACCOUNT, "vm"))
    await judged.until_done(one)


@pytest.mark.long
async def test_a_pause_that_ended_while_no_worker_ran_is_no_longer_reported(judged: JudgedSource) -> None:
    """Nothing of it is tried again in these hours: what is said then, the end of the pause has said."""
    judged.change("retry", blocked_base=timedelta(hours=1000), blocked_cap=timedelta(hours=1000))
    await blocked(judged)
    first = await judged.work()
    await until_condition(judged, "w", "CleanupWaiting", "blocked: vm")
    await judged.stop_lanes()
    await until_condition(judged, "w", "CleanupPaused", "everything is paused by test since")
    await first.stop()
    await judged.free_lanes()
    await judged.work()
    told = await until_condition(judged, "w", "CleanupWaiting", "blocked: vm")
    assert "paused" not in told["message"]


async def test_a_condition_that_could_not_be_written_is_written_once_it_can_be(judged: JudgedSource) -> None:
    judged.proxy.refuse(503, lambda method, path: path.endswith("/status"))
    await judged.going("w", annotations={"knell.dev/deletion-policy": "remove"})
    await judged.work()

    async def refused() -> bool:
        return any(path.endswith("/status") for _, path in judged.proxy.refused)

    await judged.until("a condition was refused", refused)
    judged.proxy.pass_on()
    await until_condition(judged, "w", "CleanupHeld", "allowed: delete, retain")


async def test_a_job_that_was_set_aside_is_reported(judged: JudgedSource) -> None:
    one = await judged.going("w", 2, finalizers=[FINALIZER, OTHER])
    await judged.stop_lanes()
    first = await judged.work()
    await until_condition(judged, "w", "CleanupPaused")
    await first.stop()
    job = next(iter(await judged.jobs_of(one)))
    lane = f"{judged.shard(one).stem}lane:{(await judged.job(job))['lane']}"
    for queue in (lane, f"{lane}:urgent"):
        await judged.client.zrem(queue, job)
    await judged.rewrite(job, state="aside", last_error="its worker died 3 times while it was tried alone")
    await judged.free_lanes()
    await judged.work()
    await until_condition(judged, "w", "CleanupHeld", "1 resource needs a person", "its worker died 3 times")


async def test_what_waits_by_itself_is_distinguished_from_what_needs_a_person(judged: JudgedSource) -> None:
    """A job that is held for its own reason, beside one that only waits: a person is called. Once that has gone, the
    condition does not name it any more, though nothing becomes of the other in this hour."""
    judged.change("retry", refused_recheck=timedelta(hours=1), blocked_base=timedelta(seconds=1))
    judged.make("w", 2)
    judged.provider.state.add(
        Seed(resources=(SeededResource(account=ACCOUNT, id="vm", owner="x"),
                        SeededResource(account=ACCOUNT, id="w-0", owner="tag", blocked_by=("vm",)),
                        SeededResource(account=ACCOUNT, id="w-1", owner="somebody else")))
    )  # fmt: skip
    await judged.publish(one := judged.event(judged.delete("w")))
    await judged.work()
    told = await until_condition(judged, "w", "CleanupHeld", "1 resource needs a person: w-1", "waiting for 1 resource")
    assert told["message"].index("w-1") < told["message"].index("w-0")
    assert (await until_event(judged, one.uid, "CleanupHeld"))[0] == "Warning"
    judged.provider.state.existing.pop((ACCOUNT, "vm"))

    async def names_only_the_other() -> bool:
        found = condition(judged, "w")
        return found is not None and "w-1" in found["message"] and "w-0" not in found["message"]

    await judged.until("the condition names what is in the way now", names_only_the_other)
