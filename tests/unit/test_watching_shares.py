"""Shares of sources, and what collectors keep of an object: parts of the watch side without I/O."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.settings import SettingsError, SourceSettings, check_collectors
from service.sources.declaration import Source
from service.sources.registry import SOURCES, register, source_named
from service.watching.shares import shares_of


def source(**changes: object) -> SourceSettings:
    return SourceSettings(resource="widgets.knell.test", collector="none", **changes)  # type: ignore[arg-type]


@given(namespace=st.text(max_size=63), parts=st.integers(1, 50))
def test_every_namespace_belongs_to_exactly_one_share(namespace: str, parts: int) -> None:
    shares = list(shares_of("widgets", source(shares=parts)))
    assert sum(share.includes(namespace) for share in shares) == 1
    assert shares[0].includes("")


def test_leases_and_lists_are_named_after_their_part() -> None:
    (whole,) = shares_of("widgets", source())
    assert (whole.lease, whole.label, str(whole)) == ("knell-widgets-0", "", "widgets")
    assert whole.list_labels(()) == [""]
    assert whole.list_labels(("a", "b", "a")) == ["a", "b"]
    first, second = shares_of("widgets", source(shares=2))
    assert (second.lease, second.label, str(second)) == ("knell-widgets-1", "2/2", "widgets 2/2")
    assert first.list_labels(()) == ["1/2"]
    assert sorted(first.list_labels(("a", "b")) + second.list_labels(("a", "b"))) == sorted(
        f"{'1/2' if first.includes(name) else '2/2'}:{name}" for name in ("a", "b")
    )


def test_all_unknown_collectors_are_named_at_once() -> None:
    wrong = {"one": source(), "two": SourceSettings(resource="x", collector="magic")}
    allowed = ", ".join(sorted(known.name for known in SOURCES))
    with pytest.raises(SettingsError, match=rf"sources\.two\.collector: 'magic' given; allowed: {allowed}"):
        check_collectors({**wrong, "three": SourceSettings(resource="x", collector="more")})
    check_collectors({"one": source()})


def test_a_collector_that_is_added_may_be_named() -> None:
    more = {"one": SourceSettings(resource="x", collector="more")}
    with register(Source(name="more")):
        check_collectors(more)
    with pytest.raises(SettingsError, match=r"sources\.one\.collector: 'more' given"):
        check_collectors(more)


def test_nothing_is_kept_of_an_object_that_owns_nothing() -> None:
    assert source_named("none").recognise(b'{"kind":"W","spec":{"owner":"me"},"status":{}}') == ""
