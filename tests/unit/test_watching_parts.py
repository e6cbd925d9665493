"""The pure parts of the watch side: strands and their fields, wishes that wait, changes that gather, known names."""

import asyncio

import msgspec
import pytest

from service.kubernetes import Change, Seen, Served
from service.settings import SourceSettings
from service.watching.assignment import Assignment
from service.watching.following import Inbox
from service.watching.listing import doubt_of
from service.watching.reporting import Known
from service.watching.scope import scope_hash
from service.watching.strand import Strand, is_former, strands_of
from service.watching.wishes import Wishes, wish_of

WIDGETS = Served(
    resource="widgets.knell.test", group="knell.test", version="v1", plural="widgets", kind="Widget", namespaced=True,
    status=True,
)  # fmt: skip


def assigned(part: str, namespaces: tuple[str, ...]) -> Assignment:
    source = SourceSettings(resource="widgets.knell.test", collector="none", namespaces=namespaces)
    # Nothing here asks a cluster or Redis.
    return Assignment(
        name="widgets", settings=source, cluster=None, cluster_uid="c", installation=None,  # type: ignore[arg-type]
        recognise=lambda raw: raw.decode(), part=part,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("field", "part", "namespaces", "former"),
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
def test_fields_of_strands_that_are_no_more_are_told_from_those_that_are(
    field: str, part: str, namespaces: tuple[str, ...], former: bool
) -> None:
    assert is_former(field, assigned(part, namespaces)) is former


def test_every_strand_writes_fields_that_it_recognises_as_its_own() -> None:
    for part in ("", "2/3"):
        for namespaces in ((), ("a", "b")):
            assignment = assigned(part, namespaces)
            for strand in strands_of(assignment):
                assert not is_former(strand.owned_field, assignment)
                assert not is_former(strand.field("held"), assignment)


def test_a_strand_includes_only_its_namespace() -> None:
    strand = Strand(assigned("", ("a", "b")), "a")
    assert strand.includes("a")
    assert not strand.includes("b")


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


async def test_of_one_object_only_the_latest_wish_waits() -> None:
    wishes = Wishes()
    wishes.want(wish_of(WIDGETS, _seen(1, "10"), add=True))
    wishes.want(wish_of(WIDGETS, _seen(1, "11"), add=False))
    taken = await wishes.take()
    assert (taken.resource_version, taken.add) == ("11", False)
    wishes.done(taken)
    assert wishes.empty


async def test_failed_wishes_come_back_a_few_at_first_and_more_while_none_fails() -> None:
    wishes = Wishes()
    for number in range(1000):
        wishes.want(wish_of(WIDGETS, _seen(number, "1"), add=True))
    for _ in range(1000):
        wish = await wishes.take()
        wishes.put_off(wish)
        wishes.done(wish)
    sizes: list[int] = []
    while wishes.failing:
        wishes.bring_back()
        size = 0
        while not _none_waits(wishes):
            wishes.done(await wishes.take())
            size += 1
        sizes.append(size)
    assert sizes[0] == 20
    assert sizes == sorted(sizes[:-1]) + sizes[-1:]
    assert sum(sizes) == 1000
    assert len(sizes) <= 4


async def test_a_newer_wish_takes_the_place_of_one_that_failed() -> None:
    wishes = Wishes()
    wishes.want(wish_of(WIDGETS, _seen(1, "10"), add=True))
    failed = await wishes.take()
    wishes.want(wish_of(WIDGETS, _seen(1, "11"), add=True))
    wishes.put_off(failed)
    wishes.done(failed)
    assert (await wishes.take()).resource_version == "11"
    assert not wishes.failing


async def test_wishes_that_rest_come_back_and_are_no_failure() -> None:
    wishes = Wishes()
    for number in range(300):
        wishes.want(wish_of(WIDGETS, _seen(number, "1"), add=True))
    for _ in range(300):
        wish = await wishes.take()
        wishes.rest(wish)
        wishes.done(wish)
    # They may rest for days: whoever wants a list when all is done must not wait for them.
    assert wishes.empty
    assert not wishes.failing
    wishes.drop("u0")
    came = set[str]()
    for _ in range(2):
        wishes.bring_back()
        while not _none_waits(wishes):
            wish = await wishes.take()
            came.add(wish.uid)
            wishes.done(wish)
    assert came == {f"u{number}" for number in range(1, 300)}


async def test_a_wish_that_was_dropped_while_somebody_had_it_does_not_come_back() -> None:
    wishes = Wishes()
    for keep in (wishes.rest, wishes.put_off):
        wishes.want(wish_of(WIDGETS, _seen(1, "10"), add=True))
        wish = await wishes.take()
        wishes.drop(wish.uid)
        keep(wish)
        wishes.done(wish)
        wishes.bring_back()
        assert wishes.empty


async def test_a_newer_wish_takes_the_place_of_one_that_rests() -> None:
    wishes = Wishes()
    wishes.want(wish_of(WIDGETS, _seen(1, "10"), add=True))
    early = await wishes.take()
    wishes.rest(early)
    wishes.done(early)
    wishes.want(wish_of(WIDGETS, _seen(1, "11"), add=False))
    wishes.bring_back()
    taken = await wishes.take()
    wishes.done(taken)
    assert taken.resource_version == "11"
    assert wishes.empty


def test_the_oldest_known_names_are_forgotten() -> None:
    known = Known(most=3)
    assert [known.add(name) for name in "abcab"] == [True, True, True, False, False]
    assert known.add("d")
    assert "a" not in known
    assert "d" in known


def _seen(number: int, version: str) -> Seen:
    return Seen(uid=f"u{number}", name=f"w{number}", namespace="here", resource_version=version)


def _none_waits(wishes: Wishes) -> bool:
    return not wishes._waiting


async def test_who_reads_a_watch_waits_while_too_many_or_too_long_changes_wait() -> None:
    def change(number: int, size: int) -> Change:
        raw = msgspec.Raw(b"x" * size)
        return Change(kind="ADDED", resource_version=str(number), seen=Seen(uid=str(number), name="w", raw=raw))

    async def gathered(inbox: Inbox, sizes: list[int]) -> list[list[str]]:
        """What is taken at once, when each time as much came as may wait."""

        async def put() -> None:
            for number, size in enumerate(sizes):
                await inbox.put(change(number, size))

        batches: list[list[str]] = []
        putting = asyncio.create_task(put())
        while sum(map(len, batches)) < len(sizes):
            await asyncio.sleep(0)
            batches.append([one.resource_version for one in await inbox.take(5)])
        await putting
        return batches

    assert await gathered(Inbox(most=2, most_bytes=100), [1, 1, 1]) == [["0", "1"], ["2"]]
    assert await gathered(Inbox(most=10, most_bytes=100), [60, 40, 1, 99]) == [["0", "1"], ["2", "3"]]
    # One that is too long by itself comes alone, and nothing waits for ever.
    assert await gathered(Inbox(most=10, most_bytes=100), [500, 500, 7]) == [["0"], ["1"], ["2"]]


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
    found = doubt_of(facts, str(version), 1 + hours * HOUR)
    assert (found.restored, bool(found.why)) == (restored, restored)


def test_the_first_list_of_a_source_is_not_doubted_and_an_odd_version_is_not_believed() -> None:
    assert not doubt_of({}, "5000000000", HOUR).why
    found = doubt_of({"resource_version": "7"}, "seven", HOUR)
    assert "can't be compared" in found.why
    assert not found.restored
