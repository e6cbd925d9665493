"""Bench row about admission in its smallest size: each contender's judgement is in force while objects are deleted, and
gone afterwards. With a real `knell webhook`; policies need the real control plane."""

from collections.abc import Iterator

import pytest

from bench.bench_server import BenchServer
from bench.contenders.admission import AdmissionPolicy, NoAdmission
from bench.contenders.arq import Arq
from bench.contenders.knell import Knell
from bench.contenders.protocol import Contender, NotSupportedError, PacedDeletions
from bench.rows.admission import ADMISSION
from bench.rows.row import RoundSize
from standins.kubernetes_api import EmbeddedApi
from tests.api_servers import need_real

pytestmark = pytest.mark.long

_SHORT = RoundSize(short=True)


@pytest.fixture(scope="module")
def server() -> Iterator[BenchServer]:
    with BenchServer(api=EmbeddedApi()) as ready:
        yield ready


def _measure(contender: Contender, server: BenchServer) -> None:
    server.empty()
    figures = ADMISSION.measure(contender, server, _SHORT)
    assert 0 < figures["p50"] <= figures["p99"]
    # No more than were tried, but for the first, which is sent at once.
    assert 0 < figures["rate"] < 510
    assert ("cpu_per_thousand" in figures) == (contender.kind == "knell")


def test_deletions_are_judged_only_in_the_turn_of_the_webhook(server: BenchServer) -> None:
    for contender in (Knell(), NoAdmission(), Knell()):
        _measure(contender, server)


@pytest.mark.timeout(300)
def test_on_the_real_control_plane_the_policy_judges_as_well() -> None:
    need_real()
    with BenchServer() as real:
        for contender in (AdmissionPolicy(), NoAdmission(), Knell()):
            _measure(contender, real)


def test_who_can_not_take_part_says_why(server: BenchServer) -> None:
    few = PacedDeletions(1, 1)
    with pytest.raises(NotSupportedError, match="evaluates no admission policies"):
        AdmissionPolicy().admit(server, few)
    with pytest.raises(NotSupportedError, match="judges no deletions"):
        Arq().admit(server, few)
    with pytest.raises(NotSupportedError, match="only deletes objects"):
        NoAdmission().release(server, 1)
