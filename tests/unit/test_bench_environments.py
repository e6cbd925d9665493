"""The locked environments of the peers, and the order that their programs take.
Every peer has a version that its lock file names, and no lock file names a place to fetch it from."""

import re
from pathlib import Path

import pytest

from bench.contenders.all_contenders import CONTENDERS, Contender
from bench.order import FIELDS, Order, WatchOrder

pytestmark = pytest.mark.long

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.mark.parametrize(
    "contender", [c for c in CONTENDERS if c.kind in ("python", "other", "watcher")], ids=lambda c: c.name
)
def test_every_peer_runs_a_version_that_is_locked(contender: Contender) -> None:
    assert re.search(r" \d+\.\d+", contender.version())


@pytest.mark.parametrize("lock", sorted((BENCH / "requirements").glob("*.txt")), ids=lambda lock: lock.name)
def test_python_locks_have_hashes_and_no_index(lock: Path) -> None:
    text = lock.read_text()
    pins = re.findall(r"^[a-z0-9-]+==", text, re.MULTILINE)
    assert pins
    assert text.count("--hash=sha256:") >= len(pins)
    assert "://" not in text
    assert "index-url" not in text


def test_the_node_lock_names_no_registry() -> None:
    text = (BENCH / "peers" / "bullmq" / "package-lock.json").read_text()
    assert '"integrity"' in text
    assert '"resolved"' not in text


def test_an_order_survives_its_way_through_an_argument() -> None:
    order = Order("schedule", 6379, 3, 100, FIELDS, start=1000.0, gap=0.5)
    assert Order.decode(order.encode()) == order
    assert order.due_times() == [1000.0, 1000.5, 1001.0]


def test_an_order_to_watch_survives_its_way_too_and_carries_no_token() -> None:
    order = WatchOrder("watch", "https://127.0.0.1:1", "", "/k", "turn-1", "bench.knell.dev", "v1", "sheep", 5, 6379)
    assert WatchOrder.decode(order.encode()) == order
    assert "token" not in order.encode()


def test_a_job_is_ten_flat_fields() -> None:
    assert len(FIELDS) == 10
    assert all(isinstance(value, str) for value in FIELDS.values())
