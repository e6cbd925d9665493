"""The queue of pending finalizer patches: one per object, bounded, with backoff after failures."""

from service.kubernetes import KubeObject, ServedResource
from service.watching.finalizer_queue import FinalizerQueue, patch_for

WIDGETS = ServedResource(
    resource="widgets.knell.test", group="knell.test", version="v1", plural="widgets", kind="Widget", namespaced=True,
    status=True,
)  # fmt: skip


async def test_of_one_object_only_the_latest_patch_is_queued() -> None:
    queue = FinalizerQueue()
    queue.put(patch_for(WIDGETS, _seen(1, "10"), add=True))
    queue.put(patch_for(WIDGETS, _seen(1, "11"), add=False))
    taken = await queue.take()
    assert (taken.resource_version, taken.add) == ("11", False)
    queue.done(taken)
    assert queue.empty


async def test_failed_patches_are_requeued_a_few_at_first_and_more_while_none_fails() -> None:
    queue = FinalizerQueue()
    for number in range(1000):
        queue.put(patch_for(WIDGETS, _seen(number, "1"), add=True))
    for _ in range(1000):
        pending = await queue.take()
        queue.retry_later(pending)
        queue.done(pending)
    sizes: list[int] = []
    while queue.has_failures:
        queue.requeue()
        size = 0
        while not _is_drained(queue):
            queue.done(await queue.take())
            size += 1
        sizes.append(size)
    assert sizes[0] == 20
    assert sizes == sorted(sizes[:-1]) + sizes[-1:]
    assert sum(sizes) == 1000
    assert len(sizes) <= 4


async def test_a_newer_patch_replaces_one_that_failed() -> None:
    queue = FinalizerQueue()
    queue.put(patch_for(WIDGETS, _seen(1, "10"), add=True))
    failed = await queue.take()
    queue.put(patch_for(WIDGETS, _seen(1, "11"), add=True))
    queue.retry_later(failed)
    queue.done(failed)
    assert (await queue.take()).resource_version == "11"
    assert not queue.has_failures


async def test_deferred_patches_are_requeued_and_are_no_failure() -> None:
    queue = FinalizerQueue()
    for number in range(300):
        queue.put(patch_for(WIDGETS, _seen(number, "1"), add=True))
    for _ in range(300):
        pending = await queue.take()
        queue.defer(pending)
        queue.done(pending)
    # They may be deferred for days: a relist after an overflow must not wait for them.
    assert queue.empty
    assert not queue.has_failures
    queue.drop("u0")
    came = set[str]()
    for _ in range(2):
        queue.requeue()
        while not _is_drained(queue):
            pending = await queue.take()
            came.add(pending.uid)
            queue.done(pending)
    assert came == {f"u{number}" for number in range(1, 300)}


async def test_a_patch_that_was_dropped_while_in_progress_is_not_requeued() -> None:
    queue = FinalizerQueue()
    for keep in (queue.defer, queue.retry_later):
        queue.put(patch_for(WIDGETS, _seen(1, "10"), add=True))
        pending = await queue.take()
        queue.drop(pending.uid)
        keep(pending)
        queue.done(pending)
        queue.requeue()
        assert queue.empty


async def test_a_newer_patch_replaces_one_that_was_deferred() -> None:
    queue = FinalizerQueue()
    queue.put(patch_for(WIDGETS, _seen(1, "10"), add=True))
    early = await queue.take()
    queue.defer(early)
    queue.done(early)
    queue.put(patch_for(WIDGETS, _seen(1, "11"), add=False))
    queue.requeue()
    taken = await queue.take()
    queue.done(taken)
    assert taken.resource_version == "11"
    assert queue.empty


def _seen(number: int, version: str) -> KubeObject:
    return KubeObject(uid=f"u{number}", name=f"w{number}", namespace="here", resource_version=version)


def _is_drained(queue: FinalizerQueue) -> bool:
    return not queue._queued
