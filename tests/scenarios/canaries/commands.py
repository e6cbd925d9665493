"""Commands that an operator runs while everything fails, and with wrong settings.
Their output is kept to be searched for canaries."""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.kubernetes import endpoint
from tests.capi import AWS_CLUSTERS
from tests.integration.command_line import invoke, start
from tests.scenarios.canaries.canary_setup import GIVEN, INSIDE, CanarySetup, webhook
from tests.scenarios.canaries.kubeconfigs import encoded, not_a_key
from tests.scenarios.canaries.steps import quiet
from tests.scenarios.watch.service import KnellReplica


class CommandOutputs:
    """What commands have shown, by how they were called."""

    def __init__(self) -> None:
        self.places: list[tuple[str, bytes]] = []

    async def ask(self, variables: Mapping[str, str], *words: str) -> tuple[int, str]:
        """In this process."""
        answer = await asyncio.to_thread(invoke, variables, *words)
        self._keep(words, answer.out, answer.err)
        return answer.code, answer.out

    async def ask_process(self, variables: Mapping[str, str], *words: str) -> int:
        """In one of its own: some libraries read their environment only when they are imported."""

        def run() -> tuple[str, str, int]:
            with start(variables, *words, output=subprocess.PIPE) as process:
                out, err = process.communicate(timeout=180)
                return out, err, process.returncode

        out, err, code = await asyncio.to_thread(run)
        self._keep(words, out, err)
        return code

    def _keep(self, words: Sequence[str], out: str, err: str) -> None:
        self.places.append((f"`knell {' '.join(words)}`", f"{out}\n{err}".encode()))


def planning(scene: CanarySetup, name: str = "late-400") -> tuple[str, ...]:
    return "plan", f"{AWS_CLUSTERS.resource}/{name}", "-n", scene.namespace, "--cluster", "token"


def pictures(scene: CanarySetup, deletions: Sequence[str], jobs: Sequence[str]) -> list[tuple[str, ...]]:
    """Everything that an operator may look at."""
    looks: list[tuple[str, ...]] = [
        ("status",), ("jobs", "list"), ("deletions", "list"), ("held", "list"), ("sources", "list"),
        ("clusters", "list"), ("guard", "status"), ("doctor",), planning(scene),
        ("sweep", "--dry-run"),
        *(("deletions", "show", one) for one in deletions), *(("jobs", "show", one) for one in jobs),
    ]  # fmt: skip
    return [(*look, "--output", form) for look in looks for form in ("table", "json")]


async def looked_at(scene: CanarySetup, told: CommandOutputs) -> None:
    config = str(scene.config())

    async def ids(noun: str) -> list[str]:
        code, listed = await told.ask({}, "--config", config, noun, "list", "--output", "json")
        assert code == 0
        return [one["id"] for one in msgspec.json.decode(listed)[noun]]

    deletions, jobs = await ids("deletions"), await ids("jobs")
    assert deletions
    assert jobs
    for words in pictures(scene, deletions[:3], jobs[:3]):
        await told.ask({}, "--config", config, *words)


# ---- Redis


async def misled(scene: CanarySetup, told: CommandOutputs) -> None:
    """Wrong passwords and keys, and settings that there are not."""
    known, somebody = scene.known, "redis://somebody:{}@127.0.0.1:{}/0"
    wrong = somebody.format(known["redis wrong password"], scene.server.port)
    right = somebody.format(known["redis password in the url"], scene.server.port)
    assert await _status(scene, told, {}, url=right) == 0
    assert await _status(scene, told, {}, url=wrong) != 0
    assert await _status(scene, told, {"KNELL_REDIS_URL": f"{wrong}?timeout=1"}) != 0
    assert await _status(scene, told, {}, password=known["unknown setting"]) != 0
    sentinels = scene.document["redis"]
    assert await _status(scene, told, {}, **sentinels) == 0
    for key, word in (
        ("sentinel_password_file", "redis wrong sentinel password"), ("password_file", "redis wrong password"),
    ):  # fmt: skip
        assert await _status(scene, told, {}, **{**sentinels, key: str(scene.write("wrong", known[word]))}) != 0
    tls_files = scene.tls_files["redis"]
    tls = {"ca_file": str(tls_files.ca), "cert_file": str(tls_files.certificate), "key_file": str(tls_files.key)}
    encrypted = f"rediss://127.0.0.1:{scene.encrypted.port}/0"
    assert await _status(scene, told, {}, url=encrypted, tls=tls) == 0
    broken = str(scene.write("broken-redis-key", not_a_key(known["redis broken tls key"])))
    assert await _status(scene, told, {}, url=encrypted, tls={**tls, "key_file": broken}) != 0


async def _status(scene: CanarySetup, told: CommandOutputs, variables: Mapping[str, str], **redis: Any) -> int:
    config = configured(scene, "misled", redis={"prefix": scene.redis.prefix, **redis})
    code, _ = await told.ask(variables, "--config", str(config), "status")
    return code


def configured(scene: CanarySetup, name: str, **changes: Any) -> Path:
    return scene.write(f"{name}.yaml", msgspec.yaml.encode({**scene.document, **changes}).decode())


# ---- a webhook


async def unusable_key(scene: CanarySetup, told: CommandOutputs) -> None:
    """A person gave the webhook a certificate with something that is no key."""
    certificate = scene.tls_files["tls"].certificate.read_text()
    texts = {"tls.crt": certificate, "tls.key": not_a_key(scene.known["webhook broken key"])}
    data = {key: encoded(text) for key, text in texts.items()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": GIVEN}, "data": data}
    scene.kube.create("/api/v1/namespaces/default/secrets", body)
    protection = {"cluster": "token", "webhook": webhook(GIVEN, certificate="secret")}
    config = configured(scene, "webhook", protection=protection)
    replica = KnellReplica(scene.folder, scene.redis, config, "webhook")
    try:
        await scene.until("the webhook has read the key", lambda: "key that can't be read" in replica.log)
        status, answer = await asyncio.to_thread(replica.process.get, "/readyz")
        assert (status, "key that can't be read" in answer) == (503, True), answer
        await replica.stop()
    finally:
        replica.end()
    told.places += [
        ("GET /readyz of `knell webhook`", answer.encode()),
        ("the log of `knell webhook`", replica.log.encode()),
    ]


# ---- a pod


async def inside(scene: CanarySetup, told: CommandOutputs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a pod reaches its own cluster, by the token of its service account."""
    home = scene.folder / "serviceaccount"
    home.mkdir()
    (home / "token").write_text(scene.known["kubernetes service account"])
    (home / "ca.crt").write_bytes(scene.tls_files["tls"].ca.read_bytes())
    monkeypatch.setattr(endpoint, "SERVICE_ACCOUNT", home)
    quiet(scene)
    config = configured(scene, "inside", clusters={**scene.document["clusters"], "token": {"in_cluster": True}})
    host, _, port = scene.gateways[INSIDE].url.removeprefix("https://").rpartition(":")
    variables = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    code, _ = await told.ask(variables, "--config", str(config), *planning(scene))
    assert code == 0, told.places[-1]
    scene.gateways[INSIDE].echo = 401
    code, _ = await told.ask(variables, "--config", str(config), *planning(scene))
    assert code != 0
