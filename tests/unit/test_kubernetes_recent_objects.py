"""Recent objects can be taken once and only while they are fresh, and keep nothing of a page in memory."""

import msgspec

from service.kubernetes import KubeObject, RecentObjects
from service.kubernetes.recent_objects import FRESH, MOST


def seen(uid: str = "u", **more: str) -> KubeObject:
    return KubeObject(uid=uid, name=more.get("name", uid), raw=msgspec.Raw(b"{}"))


def test_an_object_can_be_taken_once_and_has_no_raw_json() -> None:
    recent_objects = RecentObjects()
    recent_objects.note("cluster", "widgets", seen())
    assert recent_objects.take("cluster", "widgets", "u") == seen().without_raw()
    assert recent_objects.take("cluster", "widgets", "u") is None


def test_an_object_is_found_only_by_its_cluster_and_kind() -> None:
    recent_objects = RecentObjects()
    recent_objects.note("cluster", "widgets", seen())
    assert recent_objects.take("other", "widgets", "u") is None
    assert recent_objects.take("cluster", "gadgets", "u") is None
    assert recent_objects.take("cluster", "widgets", "u") is not None


def test_an_old_object_is_not_returned() -> None:
    now = 100.0
    recent_objects = RecentObjects(lambda: now)
    recent_objects.note("cluster", "widgets", seen("a"))
    recent_objects.note("cluster", "widgets", seen("b"))
    now += FRESH.total_seconds()
    assert recent_objects.take("cluster", "widgets", "a") is not None
    now += 0.001
    assert recent_objects.take("cluster", "widgets", "b") is None


def test_the_latest_state_of_an_object_counts_and_a_change_drops_it() -> None:
    recent_objects = RecentObjects()
    recent_objects.note("cluster", "widgets", seen(name="before"))
    recent_objects.note("cluster", "widgets", seen(name="after"))
    found = recent_objects.take("cluster", "widgets", "u")
    assert found is not None
    assert found.name == "after"
    recent_objects.note("cluster", "widgets", seen())
    recent_objects.forget("cluster", "widgets", "u")
    assert recent_objects.take("cluster", "widgets", "u") is None


def test_no_more_than_so_many_are_kept_and_the_oldest_goes_first() -> None:
    recent_objects = RecentObjects()
    for number in range(MOST + 1):
        recent_objects.note("cluster", "widgets", seen(str(number)))
        recent_objects.note("cluster", "widgets", seen("again"))
    taken = [recent_objects.take("cluster", "widgets", str(number)) for number in range(MOST + 1)]
    assert sum(found is not None for found in taken) == MOST - 1
    assert taken[0] is None
    assert recent_objects.take("cluster", "widgets", "again") is not None
