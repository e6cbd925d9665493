"""Leases on a real API server: one holder at a time, handed over at once on a clean end, by time otherwise."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web

from service.cluster import LEASES, Cluster, Forbidden, Lease, Live, NotFound, connect
from tests.clusters import TestApi
from tests.engine.waiting import PATIENCE
from tests.wayward_api import settings_for, status, wayward_api

# The record lasts as many seconds as two thirds of this.
_DURATION = timedelta(seconds=15)
_RECORD = 10.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def _until(what: str, holds: Callable[[], bool], within: float = PATIENCE.total_seconds()) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        await asyncio.sleep(0.02)


def _spec(api: TestApi, namespace: str, name: str = "task") -> dict[str, object]:
    found = api.kube.get(LEASES.path(namespace, name))
    assert found is not None
    spec: dict[str, object] = found["spec"]
    return spec


async def test_the_first_takes_it_and_the_second_waits(api: TestApi, cluster: Cluster) -> None:
    namespace = api.namespace()
    first, second = (Lease(cluster, namespace, "task", holder, _DURATION) for holder in ("a", "b"))
    assert await first.try_acquire()
    assert not await second.try_acquire()
    assert (first.held, second.held) == (True, False)
    spec = _spec(api, namespace)
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 10, 0)


async def test_of_many_who_want_it_at_once_one_gets_it(api: TestApi, cluster: Cluster) -> None:
    namespace = api.namespace()
    leases = [Lease(cluster, namespace, "task", f"h{number}", _DURATION) for number in range(8)]
    assert sum(await asyncio.gather(*(lease.try_acquire() for lease in leases))) == 1
    assert sum(lease.held for lease in leases) == 1


async def test_a_clean_release_hands_over_at_once(api: TestApi, cluster: Cluster) -> None:
    namespace = api.namespace()
    first, second = (Lease(cluster, namespace, "task", holder, _DURATION) for holder in ("a", "b"))
    async with first:
        assert not await second.try_acquire()
    assert not first.held
    assert _spec(api, namespace)["holderIdentity"] in ("", None)
    assert await second.try_acquire()
    assert _spec(api, namespace)["leaseTransitions"] == 1


async def test_a_dead_holder_is_replaced_only_after_its_record_was_seen_unchanged(
    api: TestApi, cluster: Cluster
) -> None:
    namespace, clock = api.namespace(), Clock()
    dead = Lease(cluster, namespace, "task", "dead", _DURATION)
    assert await dead.try_acquire()
    heir = Lease(cluster, namespace, "task", "heir", _DURATION, clock=clock)
    assert not await heir.try_acquire()
    clock.now += _RECORD - 0.1
    assert not await heir.try_acquire()
    clock.now += 0.1
    assert await heir.try_acquire()
    assert heir.held


async def test_a_renewal_seen_starts_the_wait_anew(api: TestApi, cluster: Cluster) -> None:
    namespace, clock = api.namespace(), Clock()
    holder = Lease(cluster, namespace, "task", "holder", _DURATION)
    assert await holder.try_acquire()
    other = Lease(cluster, namespace, "task", "other", _DURATION, clock=clock)
    assert not await other.try_acquire()
    clock.now += _RECORD - 1
    # Its clock may say what it likes: only that the record changed counts.
    api.kube.patch(LEASES.path(namespace, "task"), {"spec": {"renewTime": "1999-01-01T00:00:00.000000Z"}})
    assert not await other.try_acquire()
    clock.now += _RECORD - 1
    assert not await other.try_acquire()
    clock.now += 1
    assert await other.try_acquire()


async def test_who_can_not_renew_stops_before_another_may_take_over(api: TestApi, cluster: Cluster) -> None:
    namespace, clock = api.namespace(), Clock()
    lease = Lease(cluster, namespace, "task", "holder", _DURATION, clock=clock)
    assert await lease.try_acquire()
    clock.now += _RECORD * 2 / 3 - 0.1
    before = lease.held
    clock.now += 0.2
    assert (before, lease.held) == (True, False)
    await lease.keep()
    assert lease.lost.is_set()
    assert _spec(api, namespace)["holderIdentity"] == "holder"


@pytest.mark.long
async def test_a_holder_renews_and_a_waiting_one_takes_over_when_it_stops(api: TestApi, cluster: Cluster) -> None:
    namespace = api.namespace()
    # The record lasts two thirds of it: time enough for a process that a busy machine holds up.
    short = timedelta(seconds=6)
    holder = Lease(cluster, namespace, "task", "holder", short)
    assert await holder.try_acquire()
    renewing = asyncio.create_task(holder.keep())
    heir = Lease(cluster, namespace, "task", "heir", short)
    waiting = asyncio.create_task(heir.acquire())
    # So long that without renewals it would have gone over.
    begun = time.monotonic()
    renewals = {_spec(api, namespace)["renewTime"]}

    def renewed() -> bool:
        renewals.add(_spec(api, namespace)["renewTime"])
        return len(renewals) > 2 and time.monotonic() - begun > 4.5

    await _until("it was renewed", renewed)
    assert not waiting.done()
    renewed_by = holder.held
    assert renewed_by
    # As kill -9 would: nothing is handed back.
    renewing.cancel()
    stopped = time.monotonic()
    await asyncio.wait_for(waiting, PATIENCE.total_seconds())
    assert heir.held
    assert not holder.held
    # The last renewal was at most a third of the record's time ago.
    assert time.monotonic() - stopped >= 2.5


async def test_somebody_who_takes_it_by_force_is_noticed_at_the_next_renewal(api: TestApi, cluster: Cluster) -> None:
    namespace = api.namespace()
    async with Lease(cluster, namespace, "task", "holder", timedelta(seconds=3)) as lease:
        api.kube.patch(LEASES.path(namespace, "task"), {"spec": {"holderIdentity": "usurper"}})
        await asyncio.wait_for(lease.lost.wait(), PATIENCE.total_seconds())
        assert not lease.held
    assert _spec(api, namespace)["holderIdentity"] == "usurper"


async def test_an_edit_that_leaves_the_holder_alone_loses_nothing(api: TestApi, cluster: Cluster) -> None:
    namespace = api.namespace()
    async with Lease(cluster, namespace, "task", "holder", timedelta(seconds=9)) as lease:
        before = _spec(api, namespace)["renewTime"]
        api.kube.patch(LEASES.path(namespace, "task"), {"metadata": {"labels": {"team": "x"}}})
        await _until("it was renewed", lambda: _spec(api, namespace)["renewTime"] != before)
        assert lease.held
        found = api.kube.get(LEASES.path(namespace, "task"))
        assert found is not None
        assert found["metadata"]["labels"] == {"team": "x"}


async def test_a_deleted_lease_is_lost_and_can_be_taken_again(api: TestApi, cluster: Cluster) -> None:
    namespace = api.namespace()
    async with Lease(cluster, namespace, "task", "holder", timedelta(seconds=3)) as lease:
        api.kube.delete(LEASES.path(namespace, "task"))
        await asyncio.wait_for(lease.lost.wait(), PATIENCE.total_seconds())
    assert await lease.try_acquire()
    assert lease.held
    assert not lease.lost.is_set()


async def test_a_cancelled_holder_hands_back(api: TestApi, cluster: Cluster) -> None:
    namespace = api.namespace()
    holding = asyncio.Event()

    async def work() -> None:
        async with Lease(cluster, namespace, "task", "holder", _DURATION):
            holding.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.wait_for(holding.wait(), PATIENCE.total_seconds())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert _spec(api, namespace)["holderIdentity"] in ("", None)


async def test_a_release_bears_that_its_last_renewal_was_cut_off(api: TestApi, cluster: Cluster) -> None:
    namespace = api.namespace()
    async with Lease(cluster, namespace, "task", "holder", _DURATION):
        # As a renewal whose answer never came: the record is ours still, but not the one we know.
        api.kube.patch(LEASES.path(namespace, "task"), {"spec": {"renewTime": "2030-01-01T00:00:00.000000Z"}})
    assert _spec(api, namespace)["holderIdentity"] in ("", None)


async def test_one_who_stops_while_taking_it_leaves_it_free(tmp_path: Path) -> None:
    record: dict[str, object] = {}
    taking = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.method == "GET" and not record:
            return status(404, "NotFound", name="task", kind="leases")
        if request.method != "GET":
            body = await request.json()
            metadata = {"name": "task", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
            record.update({"metadata": metadata, "spec": body["spec"]})
        if request.method == "POST":
            taking.set()
            await asyncio.sleep(60)
        return web.json_response(record)

    async with wayward_api(handler) as address, await connect("x", settings_for(address, tmp_path)) as cluster:
        task = asyncio.create_task(Lease(cluster, "ns", "task", "holder").acquire())
        await asyncio.wait_for(taking.wait(), PATIENCE.total_seconds())
        assert record["spec"]["holderIdentity"] == "holder"  # type: ignore[index]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert record["spec"]["holderIdentity"] == ""  # type: ignore[index]


async def test_a_missing_namespace_is_told_and_not_waited_for(cluster: Cluster) -> None:
    with pytest.raises(NotFound):
        await Lease(cluster, "there-is-no-such-namespace", "task", "holder").acquire()


async def test_a_server_that_forbids_is_told_and_one_that_fails_is_waited_for(tmp_path: Path) -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(request.method)
        return status(500, "InternalError") if len(asked) < 3 else status(403, "Forbidden")

    async with wayward_api(handler) as address, await connect("x", settings_for(address, tmp_path)) as cluster:
        with pytest.raises(Forbidden):
            await Lease(cluster, "ns", "task", "holder", timedelta(seconds=1.5)).acquire()
    assert asked == ["GET", "GET", "GET"]


class Stuck:
    """A counter that never answers."""

    def __init__(self) -> None:
        self.asked = 0

    async def following(self, found: Live | None) -> dict[str, str]:
        del found
        self.asked += 1
        await asyncio.Event().wait()
        return {}

    async def written(self, live: Live) -> None:
        del live
        await asyncio.Event().wait()


@pytest.mark.long
async def test_no_lease_is_lost_for_a_counter_that_does_not_answer(api: TestApi, cluster: Cluster) -> None:
    stuck = Stuck()
    async with Lease(cluster, api.namespace(), "task", "holder", _DURATION, counter=stuck) as lease:
        await _until("it is renewed", lambda: stuck.asked > 2)
        assert lease.held
        assert not lease.lost.is_set()
