"""`knell plan`: what it tells of an object that lives, and that it leaves everything as it is."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.contract.names import FINALIZER
from service.local.provider import Behaviour, ProviderProcess, Quota, Seed
from service.stream.installation import Installation
from tests.clusters import TestApi
from tests.integration.declared import Declared, declare
from tests.integration.test_work_command import with_installation
from tests.servers import TestServer

SPEC = {
    "owner": "me",
    "targets": [
        {"account": "acct", "id": "vm-1", "stage": 1},
        {"account": "acct", "id": "nic-1", "stage": 0},
        {"account": "acct", "id": "log-1", "chain": "logs", "strategy": "best-effort"},
    ],
}


@pytest.fixture
def world(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> Declared:
    return declare(api, embedded_server, tmp_path)


@pytest.fixture(scope="module")
def cloud() -> Iterator[ProviderProcess]:
    quota = Quota(capacity=2, per=timedelta(seconds=20))
    with ProviderProcess(Behaviour(quota=quota), Seed()) as process:
        yield process


def ask(world: Declared, config: Path, name: str, *words: str) -> Any:
    answer = world.knell(config, "plan", f"{world.crd.kind}/{name}", "-n", world.namespace, "--output", "json", *words)
    assert answer.code == 0, answer.err
    return answer.json


def test_the_targets_come_in_their_stages_with_reason_and_estimate(world: Declared, cloud: ProviderProcess) -> None:
    world.create("one", SPEC, finalizers=[FINALIZER])
    before = world.get("one")
    config = world.config(collector="simulated")
    found = ask(world, config, "one", "--simulate", cloud.address)
    assert [(one["chain"], one["stage"], one["id"]) for one in found["targets"]] == [
        ("logs", 0, "log-1"), ("main", 0, "nic-1"), ("main", 1, "vm-1"),
    ]  # fmt: skip
    assert [one["strategy"] for one in found["targets"]] == ["best-effort", "required", "required"]
    assert found["decision"]["kind"] == "delete"
    assert found["decision"]["reason"]
    (limit,) = found["estimate"]["limits"]
    # Three calls on a bucket of two that is refilled in twenty seconds.
    assert (limit["place"], limit["wanted"], limit["available"]) == ("simulated/acct", 3, 2)
    assert found["estimate"]["at_least"] == pytest.approx(10, abs=0.1)
    table = world.knell(config, "plan", f"{world.crd.resource}/one", "-n", world.namespace, "--simulate", cloud.address)
    assert "3 resources would be removed" in table.out
    assert "10s at least" in table.out
    # Nothing was touched: not the object, not the provider, not Redis.
    assert world.get("one") == before
    assert cloud.lines() == [] or all(line.method == "GET" for line in cloud.lines())

    async def keys(installation: Installation) -> list[bytes]:
        return [key async for key in installation.connections.client.scan_iter(match=f"{world.redis.prefix}:*")]

    assert with_installation(world.redis, keys) == []


@pytest.mark.parametrize(
    ("annotations", "changes", "kind", "targets"),
    [
        ({"knell.dev/deletion-policy": "retain"}, {}, "retain", 0),
        ({"knell.dev/deletion-policy": "perhaps"}, {}, "hold", 0),
        ({"knell.dev/prevent-delete": "true"}, {}, "protected", 0),
        ({}, {"policy": {"dry_run": True}}, "dry-run", 3),
        ({}, {"paused": True}, "paused", 0),
        ({"knell.dev/gc": "disabled"}, {}, "retain", 0),
    ],
)
def test_policy_is_told_with_its_reason(
    world: Declared, annotations: dict[str, str], changes: dict[str, Any], kind: str, targets: int
) -> None:
    world.create("one", SPEC, annotations=annotations)
    found = ask(world, world.config(collector="simulated", **changes), "one")
    assert (found["decision"]["kind"], len(found["targets"])) == (kind, targets)
    assert found["decision"]["reason"]


def test_the_namespace_has_a_say(world: Declared) -> None:
    world.create("one", SPEC)
    path = f"/api/v1/namespaces/{world.namespace}"
    world.api.kube.patch(path, {"metadata": {"annotations": {"knell.dev/deletion-policy": "Retain"}}})
    found = ask(world, world.config(collector="simulated"), "one")
    assert found["decision"]["kind"] == "retain"
    assert "Namespace" in found["decision"]["reason"] or "namespace" in found["decision"]["reason"]


def test_what_has_no_finalizer_yet_is_said(world: Declared) -> None:
    world.create("one")
    answer = world.knell(world.config(), "plan", f"{world.crd.plural}/one", "-n", world.namespace)
    assert answer.code == 0, answer.err
    assert "lives, without our finalizer" in answer.out
    assert "Nothing outside the cluster would be removed." in answer.out


def test_a_spec_that_nobody_understands_holds(world: Declared) -> None:
    world.create("one", {"targets": "all of them"})
    found = ask(world, world.config(collector="simulated"), "one")
    assert "does not name its targets" in found["held"]
    assert found["targets"] == []


def test_it_works_without_redis(world: Declared, cloud: ProviderProcess) -> None:
    world.create("one", SPEC)
    away = world.knell(
        world.config(collector="simulated"), "plan", f"{world.crd.plural}/one", "-n", world.namespace,
        "--simulate", cloud.address,
        variables={"KNELL_REDIS_URL": "redis://127.0.0.1:1"},
    )  # fmt: skip
    assert away.code == 0, away.err
    assert "Redis does not answer" in away.err
    assert "3 resources would be removed" in away.out
