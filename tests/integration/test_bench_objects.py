"""Bench rows about objects in the smallest sizes: every contender releases every object, or lists and watches them.
On the embedded API, with real processes; kopf has an environment of its own and is tried by the bench itself."""

from collections.abc import Iterator

import pytest

from bench.bench_server import BenchServer
from bench.contenders.arq import Arq
from bench.contenders.bare import Bare
from bench.contenders.knell import Knell
from bench.contenders.kubernetes_asyncio import KubernetesAsyncio
from bench.contenders.protocol import Contender, NotSupportedError
from bench.rows.release import RELEASE
from bench.rows.row import RoundSize, Row
from bench.rows.takeover import ROWS as TAKEOVER
from standins.kubernetes_api import EmbeddedApi

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server() -> Iterator[BenchServer]:
    with BenchServer(api=EmbeddedApi()) as ready:
        yield ready


@pytest.mark.parametrize("contender", [Knell(), Bare()], ids=lambda one: one.name)
def test_every_deleted_object_is_released_after_its_handler(server: BenchServer, contender: Contender) -> None:
    server.empty()
    figures = RELEASE.measure(contender, server, RoundSize(short=True))
    assert figures["seconds"] > 0
    # The handler begins after the call, and before the object is gone.
    assert 0 < figures["p50"] <= figures["p99"] <= figures["seconds"] * 1000
    assert ("redis_per_thousand" in figures) == (contender.kind == "knell")


@pytest.mark.parametrize("row", TAKEOVER, ids=lambda row: row.id)
def test_the_replica_that_stood_by_handles_what_is_deleted_after_the_other_has_ended(
    server: BenchServer, row: Row
) -> None:
    server.empty()
    figures = row.trial.measure(Knell(), server, RoundSize(short=True))
    assert figures["seconds"] > 0


@pytest.mark.parametrize("contender", [Knell(), KubernetesAsyncio()], ids=lambda one: one.name)
def test_who_watches_has_listed_every_object_and_sees_a_change(server: BenchServer, contender: Contender) -> None:
    server.empty()
    peak = contender.watch(server, 30)
    assert peak is None or peak > 10 << 20


def test_the_arena_names_its_api_server(server: BenchServer) -> None:
    assert server.cluster.url.startswith("http://127.0.0.1:")
    assert server.api_version == "the embedded API, in the process of the harness"


def test_who_can_not_take_part_says_why(server: BenchServer) -> None:
    with pytest.raises(NotSupportedError, match="watches nothing"):
        Arq().release(server, 5)
    with pytest.raises(NotSupportedError, match="has no jobs"):
        Bare().drain(server, 5)
    with pytest.raises(NotSupportedError, match="runs alone"):
        Bare().take_over(server, in_order=True)
    with pytest.raises(NotSupportedError, match="is a client"):
        KubernetesAsyncio().release(server, 5)
