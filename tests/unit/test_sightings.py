"""Sightings serve once and only while they are fresh, and nothing of a page survives in them."""

import msgspec

from service.kubernetes import Seen, Sightings
from service.kubernetes.sightings import FRESH, MOST


def seen(uid: str = "u", **more: str) -> Seen:
    return Seen(uid=uid, name=more.get("name", uid), raw=msgspec.Raw(b"{}"))


def test_a_sighting_serves_once_and_without_its_text() -> None:
    sightings = Sightings()
    sightings.note("cluster", "widgets", seen())
    assert sightings.take("cluster", "widgets", "u") == seen().without_raw()
    assert sightings.take("cluster", "widgets", "u") is None


def test_a_sighting_is_of_one_cluster_and_one_kind() -> None:
    sightings = Sightings()
    sightings.note("cluster", "widgets", seen())
    assert sightings.take("other", "widgets", "u") is None
    assert sightings.take("cluster", "gadgets", "u") is None
    assert sightings.take("cluster", "widgets", "u") is not None


def test_an_old_sighting_serves_nobody() -> None:
    now = 100.0
    sightings = Sightings(lambda: now)
    sightings.note("cluster", "widgets", seen("a"))
    sightings.note("cluster", "widgets", seen("b"))
    now += FRESH.total_seconds()
    assert sightings.take("cluster", "widgets", "a") is not None
    now += 0.001
    assert sightings.take("cluster", "widgets", "b") is None


def test_of_two_sightings_the_later_one_counts_and_a_change_ends_both() -> None:
    sightings = Sightings()
    sightings.note("cluster", "widgets", seen(name="before"))
    sightings.note("cluster", "widgets", seen(name="after"))
    found = sightings.take("cluster", "widgets", "u")
    assert found is not None
    assert found.name == "after"
    sightings.note("cluster", "widgets", seen())
    sightings.forget("cluster", "widgets", "u")
    assert sightings.take("cluster", "widgets", "u") is None


def test_no_more_than_so_many_are_kept_and_the_oldest_goes_first() -> None:
    sightings = Sightings()
    for number in range(MOST + 1):
        sightings.note("cluster", "widgets", seen(str(number)))
        sightings.note("cluster", "widgets", seen("again"))
    taken = [sightings.take("cluster", "widgets", str(number)) for number in range(MOST + 1)]
    assert sum(found is not None for found in taken) == MOST - 1
    assert taken[0] is None
    assert sightings.take("cluster", "widgets", "again") is not None
