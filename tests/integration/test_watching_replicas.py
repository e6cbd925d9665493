"""Replicas that share sources by Leases: a dead one is replaced in time, one that stops hands over, and one that lost
its Lease changes nothing."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.contract.names import part_of
from service.engine.installation import Installation
from tests.api_servers import TestApi
from tests.integration.knell_process import AT_ONCE, KnellProcess, until, with_installation
from tests.integration.widget_source import WidgetSource, widget_source
from tests.redis_servers import TestServer

# Leases have to run out, with nothing beside them that takes the processor.
pytestmark = pytest.mark.long

Start = Callable[..., KnellProcess]


@pytest.fixture
def widgets(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> WidgetSource:
    return widget_source(api, embedded_server, tmp_path)


@pytest.fixture
def start(widgets: WidgetSource) -> Iterator[Start]:
    started: list[KnellProcess] = []

    def begin(config: Path) -> KnellProcess:
        started.append(widgets.start(config, "watch"))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


def holding(process: KnellProcess) -> bool:
    return process.number("knell_source_lease_held") >= 1


def test_a_killed_replica_is_replaced(widgets: WidgetSource, start: Start) -> None:
    first = start(widgets.config())
    until("it holds the lease", lambda: holding(first))
    second = start(widgets.config())
    second.until_ready()
    assert not holding(second)
    first.process.kill()
    first.process.wait()
    widgets.create("meanwhile")
    until("the other holds it", lambda: holding(second))
    until("it is marked", lambda: widgets.marked("meanwhile"))
    assert widgets.holder() == f"worker-{second.port}"
    assert widgets.lease()["spec"]["leaseTransitions"] == 1


def test_a_replica_that_stops_hands_over(widgets: WidgetSource, start: Start) -> None:
    first = start(widgets.config())
    until("it holds the lease", lambda: holding(first))
    second = start(widgets.config())
    second.until_ready()
    first.process.send_signal(signal.SIGTERM)
    assert first.end(AT_ONCE) == 0
    until("the other holds it", lambda: holding(second))


def test_a_replica_that_loses_its_lease_stops_and_takes_it_again_when_it_is_free(
    widgets: WidgetSource, start: Start
) -> None:
    process = start(widgets.config())
    until("it holds the lease", lambda: holding(process))
    path = f"/apis/coordination.k8s.io/v1/namespaces/{widgets.home}/leases/knell-widgets-0"
    # Longer than anybody here would wait; it runs out by being cleared.
    widgets.api.kube.patch(path, {"spec": {"holderIdentity": "a-stranger", "leaseDurationSeconds": 600}})
    until("it notices", lambda: not holding(process))
    widgets.create("ignored")
    assert process.said("lease lost")
    assert process.get("/readyz")[0] == 200
    assert not widgets.marked("ignored")
    widgets.api.kube.patch(path, {"spec": {"holderIdentity": ""}})
    until("it has it again", lambda: holding(process))
    until("it catches up", lambda: widgets.marked("ignored"))


def test_a_replica_that_slept_wakes_up_without_its_lease(widgets: WidgetSource, start: Start) -> None:
    first = start(widgets.config())
    until("it has listed", lambda: first.number("knell_source_relists_total") >= 1)
    second = start(widgets.config())
    second.until_ready()
    first.process.send_signal(signal.SIGSTOP)
    until("the other holds it", lambda: holding(second))
    widgets.create("one")
    until("it is marked", lambda: widgets.marked("one"))
    widgets.delete("one")
    until("it is published", lambda: second.number("knell_source_published_total") == 1)
    first.process.send_signal(signal.SIGCONT)
    until("it notices", lambda: first.said("lease lost"))
    widgets.create("two")
    until("it is marked", lambda: widgets.marked("two"))
    assert not holding(first)
    assert (first.number("knell_source_marked_total"), first.number("knell_source_published_total")) == (0, 0)
    assert widgets.holder() == f"worker-{second.port}"

    async def events(installation: Installation) -> int:
        return int(await installation.caller.command("XLEN", installation.shards[0].stem + "events"))

    assert with_installation(widgets.redis, events) == 1


def test_a_replica_that_comes_later_gets_its_part(widgets: WidgetSource, start: Start) -> None:
    shared = {"resource": widgets.crd.resource, "collector": "none"}
    sources = {f"s{number}": {**shared, "opt_out": f"part={number}"} for number in range(4)}
    config = widgets.config(sources=sources)

    def held(process: KnellProcess) -> float:
        return process.number("knell_source_lease_held")

    first = start(config)
    until("the first has all", lambda: held(first) == 4)
    second = start(config)
    until("they have the same", lambda: held(first) == held(second) == 2)
    widgets.create("one")
    until("it is marked", lambda: widgets.marked("one"))
    first.process.kill()
    until("the second has all", lambda: held(second) == 4)


def test_shares_divide_a_source_by_namespace(widgets: WidgetSource, start: Start) -> None:
    namespaces: dict[int, str] = {}
    while len(namespaces) < 2:
        name = widgets.api.namespace()
        namespaces.setdefault(part_of(name, 2), name)
    config = widgets.config(shares=2)
    both = [start(config), start(config)]
    until("both parts are held", lambda: sum(process.number("knell_source_lease_held") for process in both) == 2)
    assert widgets.lease("knell-widgets-0") is not None
    assert widgets.lease("knell-widgets-1") is not None
    for namespace in namespaces.values():
        widgets.api.kube.create(widgets.crd.path(namespace), widgets.crd.body("one"))

    def finalizers(namespace: str) -> list[str]:
        found: Any = widgets.api.kube.get(widgets.crd.path(namespace, "one"))
        return list(found["metadata"].get("finalizers", []))

    until("both are marked", lambda: all(map(finalizers, namespaces.values())))
    assert sum(process.number("knell_source_marked_total") for process in both) == 2
