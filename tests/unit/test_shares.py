"""How sources are divided into shares, and what collectors keep of an object: the pure parts of the watch side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.settings import SettingsError, SourceSettings
from service.watching.collectors import COLLECTORS, Unrecognisable, check_collectors
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
    assert whole.strands(()) == [""]
    assert whole.strands(("a", "b", "a")) == ["a", "b"]
    first, second = shares_of("widgets", source(shares=2))
    assert (second.lease, second.label, str(second)) == ("knell-widgets-1", "2/2", "widgets 2/2")
    assert first.strands(()) == ["1/2"]
    assert sorted(first.strands(("a", "b")) + second.strands(("a", "b"))) == sorted(
        f"{'1/2' if first.includes(name) else '2/2'}:{name}" for name in ("a", "b")
    )


def test_all_unknown_collectors_are_named_at_once() -> None:
    wrong = {"one": source(), "two": SourceSettings(resource="x", collector="magic")}
    with pytest.raises(
        SettingsError, match=r"sources\.two\.collector: 'magic' given; allowed: capa, karpenter-azure, none, simulated"
    ):
        check_collectors({**wrong, "three": SourceSettings(resource="x", collector="more")})
    check_collectors({"one": source()})


def test_the_simulated_collector_keeps_what_the_spec_says_of_its_targets() -> None:
    recognise = COLLECTORS["simulated"]
    raw = b'{"kind":"W","spec":{"owner":"me","other":[1],"targets":[{"account":"a","id":"x","stage":2}]},"status":{}}'
    assert recognise(raw) == '{"owner":"me","targets":[{"account":"a","id":"x","stage":2}]}'
    assert recognise(b"{}") == "{}"
    with pytest.raises(Unrecognisable, match="does not name its targets"):
        recognise(b'{"spec":{"targets":{}}}')
    assert COLLECTORS["none"](raw) == ""
