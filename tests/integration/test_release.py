"""Release: our finalizer is removed once, when everything is proven gone, and nothing else changes, whatever fails."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from service.contract.names import FINALIZER
from service.settings import LimitOverride
from tests.api_servers import TestApi
from tests.integration.judged_source import JudgedSource, judged_source
from tests.recording_proxy import Wanted
from tests.redis_servers import TestServer

OTHER = "example.com/other"


@pytest.fixture
async def judged(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[JudgedSource]:
    async with judged_source(api, embedded_server, tmp_path, collector="none") as made:
        yield made


def patching(judged: JudgedSource) -> Wanted:
    return lambda method, path: method == "PATCH" and judged.crd.plural in path


async def test_only_our_finalizer_comes_off(judged: JudgedSource) -> None:
    one = await judged.going("w", finalizers=["example.com/first", FINALIZER, OTHER])
    await judged.work()
    await judged.until_done(one)
    assert judged.read("w")["metadata"]["finalizers"] == ["example.com/first", OTHER]


async def test_another_writer_only_delays_it(judged: JudgedSource) -> None:
    one = await judged.going("w", finalizers=[FINALIZER, OTHER])
    writing = True

    async def write() -> int:
        number = 0
        while writing:
            number += 1
            await asyncio.to_thread(judged.annotate, "w", **{"example.com/counter": str(number)})
        return number

    writer = asyncio.create_task(write())
    try:
        await judged.work()
        await judged.until_done(one)
    finally:
        writing = False
        written = await writer
    found = judged.read("w")["metadata"]
    assert found["finalizers"] == [OTHER]
    assert found["annotations"]["example.com/counter"] == str(written)


@pytest.mark.invariant(4)
async def test_a_crash_between_the_released_finalizer_and_done_repeats_safely(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    one = await judged.going("w")
    first = await judged.work()
    await judged.until_state(one, "releasing")
    # What a worker that dies right after its patch leaves behind: the object is gone, nothing is recorded.
    await first.crash()
    judged.unmark("w")
    assert judged.read("w") is None
    await judged.free_lanes()
    await judged.work()
    await judged.until_done(one)
    assert (await judged.stats())["done"] == 1
    assert "withdrawn" not in await judged.deletion(one)


async def test_a_namesake_of_a_released_object_keeps_its_finalizer(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    one = await judged.going("w")
    await judged.work()
    await judged.until_state(one, "releasing")
    judged.unmark("w")
    judged.make("w", 0)
    judged.delete("w")
    await judged.free_lanes()
    await judged.until_done(one)
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]


async def test_a_dry_run_that_is_switched_on_before_the_release_holds_it(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    one = await judged.going("w")
    await judged.work()
    await judged.until_state(one, "releasing")
    judged.annotate_namespace(**{"knell.dev/dry-run": "true"})
    await judged.free_lanes()
    await judged.until_refused(one, "dry-run: annotation knell.dev/dry-run of its Namespace")
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.invariant(4)
@pytest.mark.invariant(5)
async def test_an_object_that_lives_keeps_our_finalizer_whatever_redis_says(judged: JudgedSource) -> None:
    # As after an API server was restored from a backup: the release is due, and its object is not going.
    one = judged.event(judged.make("w", 0))
    await judged.lay(one, [])
    await judged.work()
    await judged.until_refused(one, "lives: it has no deletionTimestamp")
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]
    assert await judged.state(one) == "releasing"
    assert judged.proxy.count("PATCH", "") == 0
    judged.delete("w")
    await judged.until_done(one)
    assert judged.read("w") is None


@pytest.mark.invariant(1)
@pytest.mark.invariant(8)
@pytest.mark.parametrize("there", [True, False], ids=["with the same object", "without it"])
async def test_nothing_is_released_in_another_cluster_than_that_of_the_deletion(
    judged: JudgedSource, there: bool
) -> None:
    found = judged.make("w", 0)
    judged.delete("w")
    if not there:
        judged.unmark("w")
        assert judged.read("w") is None
    one = judged.event(found, cluster="another")
    await judged.lay(one, [])
    await judged.work()
    await judged.until_refused(one, f"has uid {judged.identity}, and this is about cluster another")
    assert await judged.state(one) == "releasing"
    assert judged.proxy.count("PATCH", "") == 0
    assert not there or judged.read("w")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.invariant(1)
@pytest.mark.invariant(4)
async def test_a_missing_object_is_released_only_if_the_cluster_identity_is_verified_afterwards(
    judged: JudgedSource,
) -> None:
    await judged.stop_lanes()
    one = await judged.going("w", 0)
    await judged.work()
    await judged.until_state(one, "releasing")
    judged.unmark("w")
    assert judged.read("w") is None
    # From here on the name leads elsewhere; that it was the right cluster a moment ago proves nothing.
    await judged.client.hset(judged.installation.keys.of(0, "clusters"), "local", "the-one-before")
    await judged.free_lanes()
    await judged.until_refused(one, "has always had uid the-one-before")
    assert await judged.state(one) == "releasing"


async def test_what_rbac_forbids_is_held_and_shown(judged: JudgedSource) -> None:
    one = await judged.going("w")
    judged.proxy.refuse(403, patching(judged))
    await judged.work()
    await judged.until_refused(one, "grant it in the role")
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]
    assert await judged.state(one) == "releasing"


async def test_a_server_that_fails_is_asked_again(judged: JudgedSource) -> None:
    one = await judged.going("w")
    judged.proxy.refuse(500, patching(judged))
    await judged.work()

    async def failed() -> bool:
        return int((await judged.job((await judged.jobs_of(one))[-1])).get("attempts", 0)) >= 2

    await judged.until_state(one, "releasing")
    await judged.until("two attempts failed", failed)
    judged.proxy.pass_on()
    await judged.until_done(one)
    assert judged.read("w") is None


async def test_a_server_that_wants_to_be_left_alone_is_left_alone(judged: JudgedSource) -> None:
    one = await judged.going("w")
    judged.proxy.refuse(429, patching(judged), **{"Retry-After": "2"})
    await judged.work()

    async def throttled() -> bool:
        return (await judged.job((await judged.jobs_of(one))[-1])).get("verdict") == "throttled"

    await judged.until_state(one, "releasing")
    await judged.until("the release is throttled", throttled)
    judged.proxy.pass_on()
    asked = len(judged.proxy.refused)
    budget = await judged.budget(f"cluster/{judged.identity}")
    assert float(budget["releases|pause"]) > await judged.now()
    await judged.until_done(one)
    assert len(judged.proxy.refused) == asked
    assert (await judged.job((await judged.jobs_of(one))[-1])).get("attempts", "0") == "0"


async def test_a_burst_is_paced_by_a_budget_that_settings_can_change(judged: JudgedSource) -> None:
    judged.settings = msgspec.structs.replace(judged.settings, limits={"releases": LimitOverride(capacity=5, rate=10)})
    events = [await judged.going(f"w{number}") for number in range(15)]
    started = asyncio.get_running_loop().time()
    await judged.work()
    await judged.until_done(*events)
    # Five at once, the other ten at ten a second.
    assert asyncio.get_running_loop().time() - started >= 0.9


async def test_many_objects_are_released_and_each_deletion_is_done_once(judged: JudgedSource) -> None:
    events = [await judged.going(f"w{number}") for number in range(60)]
    await judged.work()
    await judged.work()
    await judged.until_done(*events, within=timedelta(seconds=100))
    assert all(judged.read(f"w{number}") is None for number in range(60))
    assert (await judged.stats())["done"] == 60
    assert judged.proxy.count("PATCH", "") == 60


async def test_the_release_of_an_undeclared_source_is_held(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    one = await judged.going("w")
    first = await judged.work()
    await judged.until_state(one, "releasing")
    await first.stop()
    judged.settings = msgspec.structs.replace(judged.settings, sources={})
    await judged.free_lanes()
    await judged.work()
    await judged.until_refused(one, "is not declared any more")
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.invariant(4)
async def test_nothing_is_done_while_our_finalizer_is_on_whatever_the_mode_is_by_now(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    one = await judged.going("w", targets=0)
    first = await judged.work()
    await judged.until_state(one, "releasing")
    await first.stop()
    judged.source(mode="observe")
    await judged.free_lanes()
    second = await judged.work()
    await judged.until_refused(one, "is held back by our finalizer, but source widgets only observes")
    assert await judged.state(one) == "releasing"
    await second.stop()
    judged.source(mode="finalizer")
    await judged.work()
    await judged.until_done(one)
    assert judged.read("w") is None
