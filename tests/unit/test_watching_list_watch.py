"""List scopes and their fields, the scope hash, the watch buffer and the detection of restores, without a server."""

import asyncio

import msgspec
import pytest

from service.kubernetes import KubeObject, WatchEvent
from service.settings import SourceSettings
from service.watching.assignment import Assignment, ListScope, is_stale_field, list_scopes
from service.watching.restored_cluster import restore_doubt
from service.watching.scope import scope_hash
from service.watching.source_status import RecentNames
from service.watching.watch_follower import WatchBuffer


def assigned(part: str, namespaces: tuple[str, ...]) -> Assignment:
    source = SourceSettings(resource="widgets.knell.test", collector="none", namespaces=namespaces)
    # Nothing here asks a cluster or Redis.
    return Assignment(
        name="widgets", settings=source, cluster=None, cluster_uid="c", installation=None,  # type: ignore[arg-type]
        recognise=lambda raw: raw.decode(), part=part,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("field", "part", "namespaces", "stale"),
    [
        ("owned", "", (), False),
        ("owned", "1/3", (), True),
        ("owned", "", ("x",), True),
        ("owned.x", "", ("x",), False),
        ("owned.y", "", ("x",), True),
        ("owned.2/3", "1/3", (), False),
        ("owned.2/4", "1/3", (), True),
        ("owned.2/3", "", (), True),
        ("owned.2/3:x", "1/3", ("x",), False),
        ("owned.2/3:y", "1/3", ("x",), True),
        ("held@x", "", ("x",), False),
        ("held_why@y", "", ("x",), True),
        ("problem", "", ("x",), False),
        ("resource_version@y", "", ("x",), False),
        ("guard_tripped", "", (), False),
    ],
)
def test_fields_of_list_scopes_that_no_longer_exist_are_stale(
    field: str, part: str, namespaces: tuple[str, ...], stale: bool
) -> None:
    assert is_stale_field(field, assigned(part, namespaces)) is stale


def test_the_fields_of_a_current_list_scope_are_never_stale() -> None:
    for part in ("", "2/3"):
        for namespaces in ((), ("a", "b")):
            assignment = assigned(part, namespaces)
            for list_scope in list_scopes(assignment):
                assert not is_stale_field(list_scope.owned_field, assignment)
                assert not is_stale_field(list_scope.field("held"), assignment)


def test_a_list_scope_includes_only_its_namespace() -> None:
    list_scope = ListScope(assigned("", ("a", "b")), "a")
    assert list_scope.includes("a")
    assert not list_scope.includes("b")


def test_the_scope_is_another_one_for_every_part_of_it_that_changes() -> None:
    source = SourceSettings(resource="widgets.knell.test", collector="none", namespaces=("a", "b"))
    changed = [
        scope_hash("widgets", source, "c"),
        scope_hash("renamed", source, "c"),
        scope_hash("widgets", source, "other"),
        scope_hash("widgets", SourceSettings(resource="gadgets", collector="none", namespaces=("a", "b")), "c"),
        scope_hash("widgets", SourceSettings(resource="widgets.knell.test", collector="none"), "c"),
        scope_hash("widgets", msgspec.structs.replace(source, selector="a"), "c"),
        scope_hash("widgets", msgspec.structs.replace(source, mode="observe"), "c"),
    ]
    assert len(set(changed)) == len(changed)


def test_the_scope_is_the_same_whatever_does_not_say_what_is_watched() -> None:
    source = SourceSettings(resource="widgets.knell.test", collector="none", namespaces=("a", "b"))
    same = SourceSettings(
        resource="widgets.knell.test", collector="simulated", namespaces=("b", "a"), shares=3, paused=True, opt_in="x"
    )
    assert scope_hash("widgets", source, "c") == scope_hash("widgets", same, "c")


def test_the_oldest_known_names_are_forgotten() -> None:
    known = RecentNames(most=3)
    assert [known.add(name) for name in "abcab"] == [True, True, True, False, False]
    assert known.add("d")
    assert "a" not in known
    assert "d" in known


async def test_the_watch_buffer_is_bounded_by_number_and_bytes() -> None:
    def change(number: int, size: int) -> WatchEvent:
        raw = msgspec.Raw(b"x" * size)
        return WatchEvent(
            kind="ADDED", resource_version=str(number), seen=KubeObject(uid=str(number), name="w", raw=raw)
        )

    async def gathered(buffer: WatchBuffer, sizes: list[int]) -> list[list[str]]:
        """What is taken at once, when each time as much came as may wait."""

        async def put() -> None:
            for number, size in enumerate(sizes):
                await buffer.put(change(number, size))

        batches: list[list[str]] = []
        putting = asyncio.create_task(put())
        while sum(map(len, batches)) < len(sizes):
            await asyncio.sleep(0)
            batches.append([one.resource_version for one in await buffer.take(5)])
        await putting
        return batches

    assert await gathered(WatchBuffer(most=2, most_bytes=100), [1, 1, 1]) == [["0", "1"], ["2"]]
    assert await gathered(WatchBuffer(most=10, most_bytes=100), [60, 40, 1, 99]) == [["0", "1"], ["2", "3"]]
    # One that is too long by itself comes alone, and nothing waits for ever.
    assert await gathered(WatchBuffer(most=10, most_bytes=100), [500, 500, 7]) == [["0"], ["1"], ["2"]]


HOUR = 3_600_000


@pytest.mark.invariant(5)
@pytest.mark.parametrize(
    ("version", "hours", "restored"),
    [
        (1000, 1, False), (999, 1, True), (1_000_000_000 + 1000, 1, True), (1_000_000_000 + 1000, 26, True),
        # A cluster that nobody watched for long may have come that far by itself.
        (1_000_000_000 + 1000, 30, False), (5_000_000, 0, False), (20_000_000, 0, True), (20_000_000, 1, False),
    ],
)  # fmt: skip
def test_a_resource_version_that_went_back_or_jumped_is_that_of_a_restored_cluster(
    version: int, hours: int, restored: bool
) -> None:
    facts = {"resource_version@a": "1000", "resource_version@b": "10", "listed_at@a": "1", "listed_at@b": "1"}
    found = restore_doubt(facts, str(version), 1 + hours * HOUR)
    assert (found.restored, bool(found.why)) == (restored, restored)


def test_the_first_list_of_a_source_is_not_doubted_and_an_odd_version_is_not_believed() -> None:
    assert not restore_doubt({}, "5000000000", HOUR).why
    found = restore_doubt({"resource_version": "7"}, "seven", HOUR)
    assert "can't be compared" in found.why
    assert not found.restored
