"""`knell webhook` as a real process, and the webhook as a part of `knell watch` and `knell run`: readiness, metrics,
errors, and the end of a process that API servers are connected to."""

import base64
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.admission.names import PATH
from service.settings import RedisSettings, RedisUrl
from standins.ports import free_ports
from tests.api_servers import TestApi
from tests.integration.knell_process import AT_ONCE, KnellProcess, until
from tests.integration.test_watch_command import readiness
from tests.integration.webhook_process import BUCKETS, PROTECTING, review_of
from tests.integration.widget_source import WidgetSource, widget_source
from tests.redis_servers import TestServer

pytestmark = pytest.mark.long


class WebhookProcesses:
    """Processes with a webhook on one API server, each with a port of its own."""

    def __init__(self, widgets: WidgetSource) -> None:
        self.widgets = widgets
        self.started: list[KnellProcess] = []

    def config(self, port: int, **webhook: object) -> Path:
        given = {"enabled": True, "host": "127.0.0.1", "port": port, "url": f"https://127.0.0.1:{port}", **webhook}
        return self.widgets.config(f"webhook-{port}", protection={"webhook": given}, clusters=self.clusters())

    def clusters(self) -> dict[str, object]:
        kubeconfig = self.widgets.api.kubeconfig(self.widgets.folder / "admin")
        return {"here": {"kubeconfig": str(kubeconfig), "context": "local"}}

    def start(self, config: Path, command: str = "webhook", redis: RedisSettings | None = None) -> KnellProcess:
        """By default nothing listens at the address of Redis."""
        (nowhere,) = free_ports(1)
        away = RedisSettings(url=RedisUrl.parse(f"redis://127.0.0.1:{nowhere}"))
        process = KnellProcess(self.widgets.folder, redis or away, "--config", str(config), command)
        self.started.append(process)
        return process

    def ca(self) -> str:
        """Of the certificate that the replicas share."""
        found: Any = self.widgets.api.kube.get(f"/api/v1/namespaces/{self.widgets.home}/secrets/knell-webhook-tls")
        return base64.b64decode(found["data"]["ca.crt"]).decode()


@pytest.fixture
def processes(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> Iterator[WebhookProcesses]:
    made = WebhookProcesses(widget_source(api, embedded_server, tmp_path))
    yield made
    for one in made.started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


def connect(processes: WebhookProcesses, port: int) -> ssl.SSLSocket:
    context = ssl.create_default_context(cadata=processes.ca())
    plain = socket.create_connection(("127.0.0.1", port), timeout=60)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def ask(connection: ssl.SSLSocket, name: str) -> tuple[dict[str, str], Any]:
    """Headers and body of the answer to a review of the deletion of a protected bucket."""
    body = msgspec.json.encode(review_of(BUCKETS, name, "shop", metadata={"annotations": {PROTECTING: "true"}}))
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    connection.sendall(head.encode() + b"\r\n\r\n" + body)
    with connection.makefile("rb") as answer:
        assert b" 200 " in answer.readline()
        headers = {}
        while line := answer.readline().strip():
            key, _, value = line.decode().partition(": ")
            headers[key.lower()] = value
        return headers, msgspec.json.decode(answer.read(int(headers["content-length"])))


def test_it_is_ready_without_redis_and_counts_what_it_answers(processes: WebhookProcesses) -> None:
    (port,) = free_ports(1)
    process = processes.start(processes.config(port))
    process.until_ready()
    with connect(processes, port) as connection:
        answer = ask(connection, "prod")[1]
    assert answer["response"]["allowed"] is False
    assert process.number("knell_admission_requests_total") == 1
    assert process.number("knell_admission_denials_total") == 1
    assert process.number("knell_admission_seconds_count") == 1
    assert process.number("knell_admission_certificate_expires_seconds") > 0
    assert "knell_redis_up" not in process.get("/metrics")[1]


def test_a_stopping_process_answers_on_and_closes_its_connections_behind_an_answer(
    processes: WebhookProcesses,
) -> None:
    (port,) = free_ports(1)
    process = processes.start(processes.config(port))
    process.until_ready()
    with connect(processes, port) as used, connect(processes, port) as idle:
        assert "connection" not in ask(used, "one")[0]
        process.process.send_signal(signal.SIGTERM)
        until("it is not ready", lambda: readiness(process)[0] == 503)
        headers, answer = ask(used, "two")
        assert (headers.get("connection"), answer["response"]["allowed"]) == ("close", False)
        assert used.recv(1) == b""
        assert idle.recv(1) == b""
    assert process.end(AT_ONCE) == 0


def test_a_second_signal_ends_it_at_once(processes: WebhookProcesses) -> None:
    (port,) = free_ports(1)
    process = processes.start(processes.config(port))
    process.until_ready()
    process.process.send_signal(signal.SIGTERM)
    until("it stops", lambda: process.said("webhook stopping"))
    process.process.send_signal(signal.SIGTERM)
    assert process.end(AT_ONCE) == 128 + signal.SIGTERM


def test_what_keeps_it_from_answering_is_shown_and_retried(processes: WebhookProcesses) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = processes.start(processes.config(port))
        until("it says why", lambda: "can't listen on" in readiness(process)[1].get("webhook", ""))
    process.until_ready()


def test_a_webhook_that_is_off_says_how_to_turn_it_on(processes: WebhookProcesses) -> None:
    (port,) = free_ports(1)
    process = processes.start(processes.config(port, enabled=False))
    assert process.end() == 2
    assert "set protection.webhook.enabled" in process.log.read_text()


@pytest.mark.parametrize("command", ["watch", "run"])
def test_a_watcher_answers_too_and_both_stop_together(processes: WebhookProcesses, command: str) -> None:
    (port,) = free_ports(1)
    process = processes.start(processes.config(port), command, processes.widgets.redis)
    process.until_ready()
    with connect(processes, port) as connection:
        assert ask(connection, "prod")[1]["response"]["allowed"] is False
    until("it watches", lambda: process.number("knell_source_relists_total") >= 1)
    process.process.send_signal(signal.SIGTERM)
    assert process.end(AT_ONCE) == 0


def test_a_webhook_that_fails_does_not_end_the_watcher(processes: WebhookProcesses) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = processes.start(processes.config(port), "watch", processes.widgets.redis)
        until("it says why", lambda: "can't listen on" in readiness(process)[1].get("webhook", ""))
        until("it watches", lambda: process.number("knell_source_relists_total") >= 1)
    process.until_ready()
