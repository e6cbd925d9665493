"""`knell work` as a real process: start, errors and shutdown."""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract import Event
from service.contract.names import FINALIZER
from service.engine.installation import Installation
from service.settings import RedisSettings, RedisUrl
from service.sources.registry import SOURCES
from standins.ports import free_ports
from standins.redis_servers import LocalRedis
from tests.api_servers import TestApi
from tests.integration.knell_process import AT_ONCE, KnellProcess, until, with_installation
from tests.integration.widget_source import WidgetSource, widget_source
from tests.redis_servers import TestServer
from tests.simulated import Behaviour, ProviderProcess, Seed, SeededResource

pytestmark = pytest.mark.long


@pytest.fixture
def knell(tmp_path: Path) -> Iterator[Callable[..., KnellProcess]]:
    started: list[KnellProcess] = []

    def start(redis: RedisSettings, *words: str, **variables: str) -> KnellProcess:
        started.append(KnellProcess(tmp_path, redis, *words, **variables))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


@contextmanager
def provider(latency: timedelta, *names: str) -> Iterator[ProviderProcess]:
    """Resources of one account, each tagged with the name of the object that owns it."""
    seed = Seed(resources=tuple(SeededResource(account="acct", id=name, owner=name) for name in names))
    with ProviderProcess(Behaviour(latency=(latency, latency)), seed) as process:
        yield process


def working(knell: Callable[..., KnellProcess], widgets: WidgetSource, cloud: ProviderProcess) -> KnellProcess:
    config = widgets.config(collector="simulated")
    return knell(widgets.redis, "work", "--config", str(config), SIMULATED_PROVIDER=cloud.address)


@pytest.fixture
def widgets(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> WidgetSource:
    return widget_source(api, embedded_server, tmp_path)


def delete(widgets: WidgetSource, name: str) -> Event:
    """An object that owns the resource of its name is deleted and waits for us; its event is published."""
    widgets.create(name, {"owner": name, "targets": [{"account": "acct", "id": name}]}, finalizers=[FINALIZER])
    widgets.delete(name)
    system: Any = widgets.api.kube.get("/api/v1/namespaces/kube-system")
    uid = widgets.get(name)["metadata"]["uid"]
    event = Event(
        cluster=system["metadata"]["uid"], resource=widgets.crd.resource, uid=uid, name=name,
        namespace=widgets.namespace,
        source="widgets",
    )  # fmt: skip
    publish(widgets.redis, event)
    return event


def publish(redis: RedisSettings, event: Event) -> None:
    with_installation(redis, lambda installation: installation.publish([event]))


def state(redis: RedisSettings, event: Event) -> str:
    async def read(installation: Installation) -> str:
        key = installation.shard_of(event.deletion).stem + "deletion:" + event.deletion
        found: bytes | None = await installation.caller.command("HGET", key, "state")
        return (found or b"").decode()

    return str(with_installation(redis, read))


def test_a_worker_carries_out_a_deletion_and_counts_it(
    knell: Callable[..., KnellProcess], widgets: WidgetSource
) -> None:
    with provider(timedelta(0), "a", "b") as cloud:
        events = [delete(widgets, "a"), delete(widgets, "b")]
        worker = working(knell, widgets, cloud)
        worker.until_ready()
        until("both are done", lambda: {state(widgets.redis, event) for event in events} == {"done"})
        until("it is counted", lambda: worker.number("knell_process_settled_total") == 4)
        assert worker.number("knell_process_planned_total") == 2
        assert worker.number("knell_process_taken_total") == 4
        gone = {line.id for line in cloud.lines() if line.what == "gone"}
        callers = {line.caller for line in cloud.lines() if line.method == "DELETE"}
        assert gone == {"a", "b"}
        assert callers == {f"worker-{worker.port}"}
        worker.process.send_signal(signal.SIGTERM)
        assert worker.end(AT_ONCE) == 0


@pytest.mark.parametrize("command", ["work", "run"])
def test_a_collector_that_does_not_exist_is_refused_with_those_that_do(
    knell: Callable[..., KnellProcess], embedded_server: TestServer, tmp_path: Path, command: str
) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text(
        "clusters: {main: {in_cluster: true}}\n"
        "sources: {clusters: {resource: awsclusters.infrastructure.cluster.x-k8s.io, collector: cappa}}\n"
    )
    process = knell(embedded_server.settings(), "--config", str(config), command)
    assert process.end() == 2
    said = " ".join(process.log.read_text().split())
    allowed = ", ".join(sorted(known.name for known in SOURCES))
    assert f"sources.clusters.collector: 'cappa' given; allowed: {allowed}" in said


@pytest.mark.long
def test_run_works_like_a_worker(knell: Callable[..., KnellProcess], embedded_server: TestServer) -> None:
    redis = embedded_server.settings()
    process = knell(redis, "run")
    process.until_ready()
    event = Event(cluster="c", resource="things", uid="stranger", name="stranger", source="nobody-knows")
    publish(redis, event)
    until("an event of an unknown source is held", lambda: state(redis, event) == "held")
    assert process.number("knell_process_held_total") == 1
    process.process.send_signal(signal.SIGINT)
    assert process.end(AT_ONCE) == 0


@pytest.mark.long
def test_a_worker_started_before_redis_is_alive_and_reports_why_it_is_not_ready(
    knell: Callable[..., KnellProcess],
) -> None:
    (port,) = free_ports(1)
    server = LocalRedis(port=port)
    worker = knell(server.settings(), "work")
    try:
        until("it lives", lambda: worker.get("/healthz")[0] == 200)
        status, text = worker.get("/readyz")
        hindrances = {one["what"]: one["why"] for one in msgspec.json.decode(text)["hindrances"]}
        assert status == 503
        assert set(hindrances) == {"redis", "starting"}
        assert f"127.0.0.1:{port}" in hindrances["redis"]
        assert worker.number("knell_redis_up") == 0
        until("it is said once", lambda: worker.said("server unavailable, retrying"))
        server.start()
        worker.until_ready()
        assert len(worker.said("server unavailable, retrying")) == 1
        server.kill()
        until("it is not ready any more", lambda: worker.get("/readyz")[0] == 503)
        worker.process.send_signal(signal.SIGTERM)
        # Redis is still down: the worker stops nevertheless.
        assert worker.end(timedelta(seconds=45)) == 0
    finally:
        server.stop()


def test_a_worker_that_never_reached_redis_stops_at_once(knell: Callable[..., KnellProcess]) -> None:
    (port,) = free_ports(1)
    worker = knell(RedisSettings(url=RedisUrl("redis", host="127.0.0.1", port=port)), "work")
    until("it knocks", lambda: worker.said("server unavailable, retrying"))
    worker.process.send_signal(signal.SIGTERM)
    assert worker.end(AT_ONCE) == 0


@pytest.mark.long
def test_a_stopping_worker_finishes_its_leased_jobs(knell: Callable[..., KnellProcess], widgets: WidgetSource) -> None:
    with provider(timedelta(seconds=1), "slow") as cloud:
        delete(widgets, "slow")
        worker = working(knell, widgets, cloud)
        until("it has it in hand", lambda: worker.number("knell_process_in_hand") == 1)
        worker.process.send_signal(signal.SIGTERM)
        until("it says that it stops", lambda: '"what":"stopping"' in worker.get("/readyz")[1])
        assert worker.end() == 0
        assert [line.id for line in cloud.lines() if line.what == "gone"] == ["slow"]

    async def left(installation: Installation) -> tuple[int, int, int]:
        stem = installation.shards[0].stem
        leases = await installation.caller.command("ZCARD", stem + "leases:simulated/acct/here/delete")
        batches = await installation.caller.command("ZCARD", stem + "batches")
        workers = await installation.caller.command("ZCARD", stem + "workers")
        return leases, batches, workers

    assert with_installation(widgets.redis, left) == (0, 0, 0)


@pytest.mark.long
def test_a_second_signal_ends_at_once_with_an_error(knell: Callable[..., KnellProcess], widgets: WidgetSource) -> None:
    with provider(timedelta(seconds=4), "very-slow") as cloud:
        delete(widgets, "very-slow")
        worker = working(knell, widgets, cloud)
        until("it has it in hand", lambda: worker.number("knell_process_in_hand") == 1)
        worker.process.send_signal(signal.SIGTERM)
        until("it stops", lambda: worker.said("stopping"))
        worker.process.send_signal(signal.SIGTERM)
        assert worker.end(timedelta(seconds=2)) == 128 + signal.SIGTERM
        assert worker.said("second signal, ending at once")


def test_a_wrong_shard_count_refuses_in_one_sentence(
    knell: Callable[..., KnellProcess], embedded_server: TestServer
) -> None:
    redis = embedded_server.settings()
    first = knell(redis, "work")
    first.until_ready()
    wrong = knell(msgspec.structs.replace(redis, shards=3), "work")
    assert wrong.end() == 1
    (line,) = [line for line in wrong.log.read_text().splitlines() if line.startswith("Error: ")]
    assert "the data is kept in 1 shards, but redis.shards says 3" in line
    assert "knell reshard --to 3" in line
    assert "Traceback" not in wrong.log.read_text()


@pytest.mark.parametrize(
    ("variables", "code", "words"),
    [
        ({"KNELL_WORKER_LEASE": "soon"}, 2, "worker.lease (from KNELL_WORKER_LEASE)"),
        ({"KNELL_REDIS_MODE": "cloud"}, 2, "redis.mode"),
        ({"KNELL_WORKR_LEASE": "5s"}, 2, "did you mean KNELL_WORKER_LEASE"),
    ],
)
def test_bad_settings_are_named_by_their_path(
    knell: Callable[..., KnellProcess], variables: dict[str, str], code: int, words: str
) -> None:
    worker = knell(RedisSettings(), "work", **variables)
    assert worker.end() == code
    assert words in worker.log.read_text()


def test_a_taken_port_and_a_missing_provider_are_reported_in_one_sentence(
    knell: Callable[..., KnellProcess], widgets: WidgetSource
) -> None:
    redis, config = widgets.redis, widgets.config(collector="simulated")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        taken = knell(redis, "work", KNELL_SURFACE_PORT=port)
        assert taken.end() == 1
        assert f"Error: can't listen on 127.0.0.1:{port}" in taken.log.read_text()
    (nobody,) = free_ports(1)
    lonely = knell(redis, "work", "--config", str(config), SIMULATED_PROVIDER=f"http://127.0.0.1:{nobody}")
    assert lonely.end() == 1
    assert "Error: can't reach the simulated provider" in lonely.log.read_text()
    assert "Traceback" not in taken.log.read_text() + lonely.log.read_text()
