"""Limits of concurrent calls to one API server: in all, and per kind of object."""

import asyncio

import pytest

from service.kubernetes.concurrency import AT_ONCE, PER_KIND, CallLimits, kind_in


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/apis/knell.test/v1/namespaces/ns/things/one", "things.knell.test"),
        ("/apis/knell.test/v2/namespaces/other/things", "things.knell.test"),
        ("/apis/knell.test/v1/things/one/status", "things.knell.test"),
        ("/api/v1/namespaces/ns/pods/one", "pods."),
        ("/api/v1/namespaces/ns", "namespaces."),
        ("/api/v1/namespaces", "namespaces."),
        ("/apis/knell.test/v1", ".knell.test"),
        ("/apis", "/apis"),
        ("/version", "/version"),
    ],
)
def test_a_path_tells_which_kind_it_is_about_in_whatever_namespace_and_version(path: str, kind: str) -> None:
    assert kind_in(path) == kind


async def test_a_kind_whose_calls_hang_leaves_turns_to_the_others() -> None:
    slots, over = CallLimits(), asyncio.Event()
    under_way: list[str] = []

    async def call(path: str, until: asyncio.Event | None) -> None:
        async with slots.slot(path):
            under_way.append(path)
            if until is not None:
                await until.wait()

    hung = [asyncio.ensure_future(call(f"/apis/g/v1/namespaces/{n}/hung/x", over)) for n in range(2 * AT_ONCE)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(under_way) == PER_KIND
    async with asyncio.timeout(30):
        await asyncio.gather(*(call("/apis/g/v1/namespaces/ns/fine/x", None) for _ in range(2 * AT_ONCE)))
    over.set()
    await asyncio.gather(*hung)
    assert len(under_way) == 4 * AT_ONCE


async def test_no_more_calls_than_all_turns_are_made_at_once_whatever_they_are_about() -> None:
    slots, over, most, now = CallLimits(), asyncio.Event(), 0, 0

    async def call(path: str) -> None:
        nonlocal most, now
        async with slots.slot(path):
            now += 1
            most = max(most, now)
            await over.wait()
            now -= 1

    calls = [asyncio.ensure_future(call(f"/apis/g/v1/kind{n % 10}/x")) for n in range(100)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert now == AT_ONCE
    over.set()
    await asyncio.gather(*calls)
    assert most == AT_ONCE


async def test_a_call_cancelled_while_it_waits_for_a_slot_leaves_no_trace() -> None:
    slots, over = CallLimits(at_once=2, per_kind=1), asyncio.Event()

    async def call() -> None:
        async with slots.slot("/api/v1/namespaces/ns/pods/x"):
            await over.wait()

    first, second = asyncio.ensure_future(call()), asyncio.ensure_future(call())
    await asyncio.sleep(0)
    second.cancel()
    over.set()
    await asyncio.gather(first, second, return_exceptions=True)
    async with asyncio.timeout(30), slots.slot("/api/v1/namespaces/ns/pods/x"), slots.slot("/api/v1/nodes/x"):
        pass
