"""The collector of the simulated provider: what the watch side keeps of an object's spec."""

import pytest

from service.sources.declaration import Unrecognisable
from tests.simulated.collector import recognise


def test_the_targets_that_the_spec_names_are_kept() -> None:
    raw = b'{"kind":"W","spec":{"owner":"me","other":[1],"targets":[{"account":"a","id":"x","stage":2}]},"status":{}}'
    assert recognise(raw) == '{"owner":"me","targets":[{"account":"a","id":"x","stage":2}]}'
    assert recognise(b"{}") == "{}"
    with pytest.raises(Unrecognisable, match="does not name its targets"):
        recognise(b'{"spec":{"targets":{}}}')
