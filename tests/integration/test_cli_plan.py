"""`knell plan`: what it tells of an object that lives, and that it leaves everything as it is."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.contract.names import FINALIZER
from service.engine.guard import Going, Guard
from service.engine.installation import Installation
from service.settings import GuardSettings
from standins.provider import Behaviour, ProviderProcess, Quota, Seed
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
    assert "not known: Redis does not answer" in away.out


# ---- the guard


def counted(world: Declared, guard: GuardSettings, *uids: str) -> list[bool]:
    """Other deletions of the source, which its guard is really asked for."""

    async def admit(installation: Installation) -> list[bool]:
        answers = await Guard(installation).admit("widgets", [Going(uid, 0) for uid in uids], guard)
        return [one.admitted for one in answers]

    found: list[bool] = with_installation(world.redis, admit)
    return found


def kept(world: Declared) -> dict[str, Any]:
    """What the guard has written down."""

    async def read(installation: Installation) -> dict[str, Any]:
        client, stem = installation.connections.client, installation.shards[0].stem
        scored = {name: await client.zrange(f"{stem}{name}:widgets", 0, -1, withscores=True)
                  for name in ("guard", "passed", "guarded")}  # fmt: skip
        return {**scored, "record": await client.hgetall(f"{stem}source:widgets")}

    found: dict[str, Any] = with_installation(world.redis, read)
    return found


def test_it_tells_whether_the_guard_would_hold_it_and_counts_nothing(world: Declared) -> None:
    uid = world.create("one", finalizers=[FINALIZER])["metadata"]["uid"]
    config = world.config(guard={"most": 3, "percent": 100, "window": "1h"})
    guard = GuardSettings(most=3, percent=100, window=timedelta(hours=1))
    assert counted(world, guard, "a", "b") == [True, True]
    before = kept(world)
    # However often it is asked for, it does not count.
    for told in [ask(world, config, "one")["guard"] for _ in range(3)]:
        assert (told["holds"], told["tripped"], told["counted"], told["limit"]) == (False, None, 2, 3)
        assert "would let it through, 2 of 3 deletions within 1h" in told["says"]
    assert kept(world) == before

    assert counted(world, guard, "c") == [True]
    before = kept(world)
    told = ask(world, config, "one")["guard"]
    assert (told["holds"], told["tripped"], told["counted"]) == (True, None, 3)
    assert "would trip and hold it" in told["says"]
    assert kept(world) == before

    assert counted(world, guard, "d") == [False]
    before = kept(world)
    told = ask(world, config, "one")["guard"]
    assert told["holds"] is True
    assert told["tripped"] is not None
    assert "`knell guard release widgets`" in told["why"]
    table = world.knell(config, "plan", f"{world.crd.resource}/one", "-n", world.namespace).out
    assert "would hold it, tripped since 20" in table
    assert kept(world) == before
    # Just as the guard itself says when it is asked in earnest.
    assert counted(world, guard, uid) == [False]


def test_what_the_guard_has_let_through_before_is_not_held_although_it_has_tripped(world: Declared) -> None:
    uid = world.create("one", finalizers=[FINALIZER])["metadata"]["uid"]
    config = world.config(guard={"most": 1, "percent": 100})
    assert counted(world, GuardSettings(most=1, percent=100), uid, "a") == [True, False]
    told = ask(world, config, "one")["guard"]
    assert (told["holds"], told["passed"]) == (False, True)


def test_what_is_retained_is_not_asked_of_the_guard(world: Declared) -> None:
    world.create("one", annotations={"knell.dev/deletion-policy": "retain"})
    config = world.config(guard={"most": 1, "percent": 100})
    counted(world, GuardSettings(most=1, percent=100), "a", "b")
    told = ask(world, config, "one")["guard"]
    assert (told["asked"], told["holds"]) == (False, False)
    off = ask(world, world.config(guard={"enabled": False}), "one")["guard"]
    assert (off["asked"], off["limit"]) == (False, None)
