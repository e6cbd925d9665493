"""`knell work` as a real process: how it starts, what stands in its way, and how it ends."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.contract import Event
from service.engine.installation import Installation
from service.settings import RedisSettings, RedisUrl, Settings
from standins.ports import free_ports
from standins.provider import Behaviour, Object, ProviderProcess, Resource, Seed, TargetOf
from standins.servers import Server
from tests.servers import TestServer

PATIENCE = timedelta(seconds=100)
AT_ONCE = timedelta(seconds=20)
"""Less than the grace period that a worker has by default."""


def until(what: str, look: Callable[[], Any], within: timedelta = PATIENCE) -> Any:
    deadline = time.monotonic() + within.total_seconds()
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)
    return seen


class Process:
    """One `knell` process, with a surface of its own."""

    def __init__(self, directory: Path, redis: RedisSettings, *words: str, **variables: str) -> None:
        (self.port,) = free_ports(1)
        self.log = directory / f"{self.port}.log"
        clean = {key: value for key, value in os.environ.items() if not key.startswith("KNELL_")}
        settings = {
            "KNELL_REDIS_URL": str(redis.url),
            "KNELL_REDIS_PREFIX": redis.prefix,
            "KNELL_REDIS_SHARDS": str(redis.shards),
            "KNELL_SURFACE_HOST": "127.0.0.1",
            "KNELL_SURFACE_PORT": str(self.port),
            "KNELL_WORKER_NAME": f"worker-{self.port}",
            "KNELL_LOG_FORMAT": "json",
        }
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from service.cli.main import main; main()", *words],
                env={**clean, **settings, **variables},
                stdout=output,
                stderr=output,
            )

    def get(self, path: str) -> tuple[int, str]:
        """0 while nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            assert self.process.poll() is None, self.log.read_text()
            return 0, ""

    def until_ready(self) -> None:
        until("it is ready", lambda: self.get("/readyz")[0] == 200)

    def number(self, metric: str) -> float:
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return sum(sample.value for family in families for sample in family.samples if sample.name == metric)

    def end(self, within: timedelta = PATIENCE) -> int:
        return self.process.wait(within.total_seconds())

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [msgspec.json.decode(line) for line in self.log.read_bytes().splitlines() if line[:1] == b"{"]
        return [line for line in lines if line["event"] == event]


@pytest.fixture
def knell(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(redis: RedisSettings, *words: str, **variables: str) -> Process:
        started.append(Process(tmp_path, redis, *words, **variables))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


@contextmanager
def provider(latency: timedelta, *names: str) -> Iterator[ProviderProcess]:
    """Resources of one account, each owned by an object of the same name."""
    seed = Seed(
        resources=tuple(Resource(account="acct", id=name, owner=name) for name in names),
        objects=tuple(Object(uid=name, owner=name, targets=(TargetOf(account="acct", id=name),)) for name in names),
    )
    with ProviderProcess(Behaviour(latency=(latency, latency)), seed) as process:
        yield process


def with_installation(redis: RedisSettings, work: Callable[[Installation], Any]) -> Any:
    async def run() -> Any:
        installation = Installation(Settings(redis=redis))
        try:
            return await work(installation)
        finally:
            await installation.aclose()

    return asyncio.run(run())


def publish(redis: RedisSettings, *names: str, source: str = "simulated") -> None:
    events = [Event(cluster="c", resource="things", uid=name, name=name, source=source) for name in names]
    with_installation(redis, lambda installation: installation.publish(events))


def state(redis: RedisSettings, name: str) -> str:
    async def read(installation: Installation) -> str:
        deletion = f"c/things/{name}/1"
        key = installation.shard_of(deletion).stem + "deletion:" + deletion
        found: bytes | None = await installation.caller.command("HGET", key, "state")
        return (found or b"").decode()

    return str(with_installation(redis, read))


def test_a_worker_carries_out_a_deletion_and_counts_it(
    knell: Callable[..., Process], embedded_server: TestServer
) -> None:
    redis = embedded_server.settings()
    with provider(timedelta(0), "a", "b") as cloud:
        publish(redis, "a", "b")
        worker = knell(redis, "work", "--simulate", cloud.address)
        worker.until_ready()
        until("both are done", lambda: {state(redis, "a"), state(redis, "b")} == {"done"})
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
    knell: Callable[..., Process], embedded_server: TestServer, tmp_path: Path, command: str
) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text(
        "clusters: {main: {in_cluster: true}}\n"
        "sources: {clusters: {resource: awsclusters.infrastructure.cluster.x-k8s.io, collector: cappa}}\n"
    )
    process = knell(embedded_server.settings(), "--config", str(config), command)
    assert process.end() == 2
    said = " ".join(process.log.read_text().split())
    assert "sources.clusters.collector: 'cappa' given; allowed: capa, karpenter-azure, none, simulated" in said


@pytest.mark.long
def test_run_works_like_a_worker(knell: Callable[..., Process], embedded_server: TestServer) -> None:
    redis = embedded_server.settings()
    process = knell(redis, "run")
    process.until_ready()
    publish(redis, "stranger", source="nobody-knows")
    until("an event of an unknown source is held", lambda: state(redis, "stranger") == "held")
    assert process.number("knell_process_held_total") == 1
    process.process.send_signal(signal.SIGINT)
    assert process.end(AT_ONCE) == 0


@pytest.mark.long
def test_a_worker_before_its_server_is_alive_and_says_why_it_is_not_ready(knell: Callable[..., Process]) -> None:
    (port,) = free_ports(1)
    server = Server(port=port)
    worker = knell(server.settings(), "work")
    try:
        until("it lives", lambda: worker.get("/healthz")[0] == 200)
        status, text = worker.get("/readyz")
        hindrances = {one["what"]: one["why"] for one in msgspec.json.decode(text)["hindrances"]}
        assert status == 503
        assert set(hindrances) == {"redis", "starting"}
        assert f"127.0.0.1:{port}" in hindrances["redis"]
        assert worker.number("knell_redis_up") == 0
        until("it is said once", lambda: worker.said("server away, trying on"))
        server.start()
        worker.until_ready()
        assert len(worker.said("server away, trying on")) == 1
        server.kill()
        until("it is not ready any more", lambda: worker.get("/readyz")[0] == 503)
        worker.process.send_signal(signal.SIGTERM)
        # The server stays away: it goes all the same.
        assert worker.end(timedelta(seconds=45)) == 0
    finally:
        server.stop()


def test_a_worker_that_never_found_its_server_stops_at_once(knell: Callable[..., Process]) -> None:
    (port,) = free_ports(1)
    worker = knell(RedisSettings(url=RedisUrl("redis", host="127.0.0.1", port=port)), "work")
    until("it knocks", lambda: worker.said("server away, trying on"))
    worker.process.send_signal(signal.SIGTERM)
    assert worker.end(AT_ONCE) == 0


@pytest.mark.long
def test_a_stopping_worker_finishes_what_it_has_in_hand(
    knell: Callable[..., Process], embedded_server: TestServer
) -> None:
    redis = embedded_server.settings()
    with provider(timedelta(seconds=1), "slow") as cloud:
        publish(redis, "slow")
        worker = knell(redis, "work", "--simulate", cloud.address)
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

    assert with_installation(redis, left) == (0, 0, 0)


@pytest.mark.long
def test_a_second_signal_ends_at_once_with_an_error(knell: Callable[..., Process], embedded_server: TestServer) -> None:
    redis = embedded_server.settings()
    with provider(timedelta(seconds=4), "very-slow") as cloud:
        publish(redis, "very-slow")
        worker = knell(redis, "work", "--simulate", cloud.address)
        until("it has it in hand", lambda: worker.number("knell_process_in_hand") == 1)
        worker.process.send_signal(signal.SIGTERM)
        until("it stops", lambda: worker.said("stopping"))
        worker.process.send_signal(signal.SIGTERM)
        assert worker.end(timedelta(seconds=2)) == 128 + signal.SIGTERM
        assert worker.said("second signal, ending at once")


def test_a_wrong_shard_count_refuses_in_one_sentence(
    knell: Callable[..., Process], embedded_server: TestServer
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
    knell: Callable[..., Process], variables: dict[str, str], code: int, words: str
) -> None:
    worker = knell(RedisSettings(), "work", **variables)
    assert worker.end() == code
    assert words in worker.log.read_text()


def test_a_taken_port_and_a_missing_provider_are_said_in_one_sentence(
    knell: Callable[..., Process], embedded_server: TestServer
) -> None:
    redis = embedded_server.settings()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        taken = knell(redis, "work", KNELL_SURFACE_PORT=port)
        assert taken.end() == 1
        assert f"Error: can't listen on 127.0.0.1:{port}" in taken.log.read_text()
    (nobody,) = free_ports(1)
    lonely = knell(redis, "work", "--simulate", f"http://127.0.0.1:{nobody}")
    assert lonely.end() == 1
    assert "Error: can't reach the simulated provider" in lonely.log.read_text()
    assert "Traceback" not in taken.log.read_text() + lonely.log.read_text()
