"""The release: our finalizer comes off when everything is gone, once, and nothing else, whatever goes wrong."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from service.contract.names import FINALIZER
from service.settings import LimitOverride
from tests.clusters import TestApi
from tests.integration.front import Wanted
from tests.integration.staged import Stage, staged
from tests.servers import TestServer

OTHER = "example.com/other"


@pytest.fixture
async def stage(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(api, embedded_server, tmp_path, collector="none") as made:
        yield made


def patching(stage: Stage) -> Wanted:
    return lambda method, path: method == "PATCH" and stage.crd.plural in path


async def test_only_our_finalizer_comes_off(stage: Stage) -> None:
    one = await stage.going("w", finalizers=["example.com/first", FINALIZER, OTHER])
    await stage.work()
    await stage.until_done(one)
    assert stage.read("w")["metadata"]["finalizers"] == ["example.com/first", OTHER]


async def test_another_writer_only_delays_it(stage: Stage) -> None:
    one = await stage.going("w", finalizers=[FINALIZER, OTHER])
    writing = True

    async def write() -> int:
        number = 0
        while writing:
            number += 1
            await asyncio.to_thread(stage.annotate, "w", **{"example.com/counter": str(number)})
        return number

    writer = asyncio.create_task(write())
    try:
        await stage.work()
        await stage.until_done(one)
    finally:
        writing = False
        written = await writer
    found = stage.read("w")["metadata"]
    assert found["finalizers"] == [OTHER]
    assert found["annotations"]["example.com/counter"] == str(written)


@pytest.mark.invariant(4)
async def test_a_crash_between_the_released_finalizer_and_done_repeats_safely(stage: Stage) -> None:
    await stage.stop_lanes()
    one = await stage.going("w")
    first = await stage.work()
    await stage.until_state(one, "releasing")
    # What a worker that dies right after its patch leaves behind: the object is gone, nothing is recorded.
    await first.crash()
    stage.unmark("w")
    assert stage.read("w") is None
    await stage.free_lanes()
    await stage.work()
    await stage.until_done(one)
    assert (await stage.stats())["done"] == 1
    assert "withdrawn" not in await stage.deletion(one)


async def test_a_namesake_of_a_released_object_keeps_its_finalizer(stage: Stage) -> None:
    await stage.stop_lanes()
    one = await stage.going("w")
    await stage.work()
    await stage.until_state(one, "releasing")
    stage.unmark("w")
    stage.make("w", 0)
    stage.delete("w")
    await stage.free_lanes()
    await stage.until_done(one)
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]


async def test_a_dry_run_that_is_switched_on_before_the_release_holds_it(stage: Stage) -> None:
    await stage.stop_lanes()
    one = await stage.going("w")
    await stage.work()
    await stage.until_state(one, "releasing")
    stage.annotate_namespace(**{"knell.dev/dry-run": "true"})
    await stage.free_lanes()
    await stage.until_refused(one, "dry-run: annotation knell.dev/dry-run of its Namespace")
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.invariant(4)
@pytest.mark.invariant(5)
async def test_an_object_that_lives_keeps_our_finalizer_whatever_redis_says(stage: Stage) -> None:
    # As after an API server was restored from a backup: the release is due, and its object is not going.
    one = stage.event(stage.make("w", 0))
    await stage.lay(one, [])
    await stage.work()
    await stage.until_refused(one, "lives: it has no deletionTimestamp")
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]
    assert await stage.state(one) == "releasing"
    assert stage.front.count("PATCH", "") == 0
    stage.delete("w")
    await stage.until_done(one)
    assert stage.read("w") is None


@pytest.mark.invariant(1)
@pytest.mark.invariant(8)
@pytest.mark.parametrize("there", [True, False], ids=["with the same object", "without it"])
async def test_nothing_is_released_in_another_cluster_than_that_of_the_deletion(stage: Stage, there: bool) -> None:
    found = stage.make("w", 0)
    stage.delete("w")
    if not there:
        stage.unmark("w")
        assert stage.read("w") is None
    one = stage.event(found, cluster="another")
    await stage.lay(one, [])
    await stage.work()
    await stage.until_refused(one, f"has uid {stage.identity}, and this is about cluster another")
    assert await stage.state(one) == "releasing"
    assert stage.front.count("PATCH", "") == 0
    assert not there or stage.read("w")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.invariant(1)
@pytest.mark.invariant(4)
async def test_a_missing_object_is_released_only_if_the_cluster_is_asked_who_it_is_after_it(stage: Stage) -> None:
    await stage.stop_lanes()
    one = await stage.going("w", 0)
    await stage.work()
    await stage.until_state(one, "releasing")
    stage.unmark("w")
    assert stage.read("w") is None
    # From here on the name leads elsewhere; that it was the right cluster a moment ago proves nothing.
    await stage.client.hset(stage.installation.keys.of(0, "clusters"), "local", "the-one-before")
    await stage.free_lanes()
    await stage.until_refused(one, "has always had uid the-one-before")
    assert await stage.state(one) == "releasing"


async def test_what_rbac_forbids_is_held_and_shown(stage: Stage) -> None:
    one = await stage.going("w")
    stage.front.refuse(403, patching(stage))
    await stage.work()
    await stage.until_refused(one, "grant it in the role")
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]
    assert await stage.state(one) == "releasing"


async def test_a_server_that_fails_is_asked_again(stage: Stage) -> None:
    one = await stage.going("w")
    stage.front.refuse(500, patching(stage))
    await stage.work()

    async def failed() -> bool:
        return int((await stage.job((await stage.jobs_of(one))[-1])).get("attempts", 0)) >= 2

    await stage.until_state(one, "releasing")
    await stage.until("two attempts failed", failed)
    stage.front.pass_on()
    await stage.until_done(one)
    assert stage.read("w") is None


async def test_a_server_that_wants_to_be_left_alone_is_left_alone(stage: Stage) -> None:
    one = await stage.going("w")
    stage.front.refuse(429, patching(stage), **{"Retry-After": "2"})
    await stage.work()

    async def throttled() -> bool:
        return (await stage.job((await stage.jobs_of(one))[-1])).get("verdict") == "throttled"

    await stage.until_state(one, "releasing")
    await stage.until("the release is throttled", throttled)
    stage.front.pass_on()
    asked = len(stage.front.refused)
    budget = await stage.budget(f"cluster/{stage.identity}")
    assert float(budget["releases|pause"]) > await stage.now()
    await stage.until_done(one)
    assert len(stage.front.refused) == asked
    assert (await stage.job((await stage.jobs_of(one))[-1])).get("attempts", "0") == "0"


async def test_a_burst_is_paced_by_a_budget_that_settings_can_change(stage: Stage) -> None:
    stage.settings = msgspec.structs.replace(stage.settings, limits={"releases": LimitOverride(capacity=5, rate=10)})
    events = [await stage.going(f"w{number}") for number in range(15)]
    started = asyncio.get_running_loop().time()
    await stage.work()
    await stage.until_done(*events)
    # Five at once, the other ten at ten a second.
    assert asyncio.get_running_loop().time() - started >= 0.9


async def test_many_objects_are_released_and_each_deletion_is_done_once(stage: Stage) -> None:
    events = [await stage.going(f"w{number}") for number in range(60)]
    await stage.work()
    await stage.work()
    await stage.until_done(*events, within=timedelta(seconds=100))
    assert all(stage.read(f"w{number}") is None for number in range(60))
    assert (await stage.stats())["done"] == 60
    assert stage.front.count("PATCH", "") == 60


async def test_the_release_of_an_undeclared_source_is_held(stage: Stage) -> None:
    await stage.stop_lanes()
    one = await stage.going("w")
    first = await stage.work()
    await stage.until_state(one, "releasing")
    await first.stop()
    stage.settings = msgspec.structs.replace(stage.settings, sources={})
    await stage.free_lanes()
    await stage.work()
    await stage.until_refused(one, "is not declared any more")
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.invariant(4)
async def test_nothing_is_done_while_our_finalizer_is_on_whatever_the_mode_is_by_now(stage: Stage) -> None:
    await stage.stop_lanes()
    one = await stage.going("w", targets=0)
    first = await stage.work()
    await stage.until_state(one, "releasing")
    await first.stop()
    stage.source(mode="observe")
    await stage.free_lanes()
    second = await stage.work()
    await stage.until_refused(one, "is held back by our finalizer, but source widgets only observes")
    assert await stage.state(one) == "releasing"
    await second.stop()
    stage.source(mode="finalizer")
    await stage.work()
    await stage.until_done(one)
    assert stage.read("w") is None
