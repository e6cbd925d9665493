"""The rows about objects, in the smallest sizes: whoever takes part lets every object go, or lists and watches them.
On the embedded API, with real processes; kopf has an environment of its own and is tried by the bench itself."""

from collections.abc import Iterator

import pytest

from bench.arena import Arena
from bench.contenders.arq import Arq
from bench.contenders.bare import Bare
from bench.contenders.knell import Knell
from bench.contenders.kubernetes_asyncio import KubernetesAsyncio
from bench.contenders.protocol import Contender, NotSupportedError
from bench.rows.release import RELEASE
from bench.rows.row import Row, Size
from bench.rows.takeover import ROWS as TAKEOVER
from standins.api import EmbeddedApi

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with Arena(api=EmbeddedApi()) as ready:
        yield ready


@pytest.mark.parametrize("contender", [Knell(), Bare()], ids=lambda one: one.name)
def test_every_deleted_object_is_let_go_after_its_handler(arena: Arena, contender: Contender) -> None:
    arena.empty()
    figures = RELEASE.measure(contender, arena, Size(short=True))
    assert figures["seconds"] > 0
    # The handler begins after the call, and before the object is gone.
    assert 0 < figures["p50"] <= figures["p99"] <= figures["seconds"] * 1000
    assert ("redis_per_thousand" in figures) == (contender.kind == "knell")


@pytest.mark.parametrize("row", TAKEOVER, ids=lambda row: row.id)
def test_the_replica_that_stood_by_handles_what_is_deleted_after_the_other_has_ended(arena: Arena, row: Row) -> None:
    arena.empty()
    figures = row.trial.measure(Knell(), arena, Size(short=True))
    assert figures["seconds"] > 0


@pytest.mark.parametrize("contender", [Knell(), KubernetesAsyncio()], ids=lambda one: one.name)
def test_who_watches_has_listed_every_object_and_sees_a_change(arena: Arena, contender: Contender) -> None:
    arena.empty()
    peak = contender.watch(arena, 30)
    assert peak is None or peak > 10 << 20


def test_the_arena_names_its_api_server(arena: Arena) -> None:
    assert arena.cluster.url.startswith("http://127.0.0.1:")
    assert arena.api_version == "the embedded API, in the process of the harness"


def test_who_can_not_take_part_says_why(arena: Arena) -> None:
    with pytest.raises(NotSupportedError, match="watches nothing"):
        Arq().release(arena, 5)
    with pytest.raises(NotSupportedError, match="has no jobs"):
        Bare().drain(arena, 5)
    with pytest.raises(NotSupportedError, match="runs alone"):
        Bare().take_over(arena, in_order=True)
    with pytest.raises(NotSupportedError, match="is a client"):
        KubernetesAsyncio().release(arena, 5)
