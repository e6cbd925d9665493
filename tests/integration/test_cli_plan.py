"""`knell plan`: what it shows for an object that is not being deleted, and that it changes nothing."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.contract.names import FINALIZER
from service.engine.guard import DeletedObject, Guard
from service.engine.installation import Installation
from service.settings import GuardSettings
from tests.api_servers import TestApi
from tests.integration.knell_process import with_installation
from tests.integration.widget_source import WidgetSource, widget_source
from tests.redis_servers import TestServer
from tests.simulated import Behaviour, ProviderProcess, Quota, Seed
from tests.simulated.source import simulated_source

SPEC = {
    "owner": "me",
    "targets": [
        {"account": "acct", "id": "vm-1", "stage": 1},
        {"account": "acct", "id": "nic-1", "stage": 0},
        {"account": "acct", "id": "log-1", "chain": "logs", "strategy": "best-effort"},
    ],
}


@pytest.fixture
def widgets(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> WidgetSource:
    return widget_source(api, embedded_server, tmp_path)


@pytest.fixture(scope="module")
def cloud() -> Iterator[ProviderProcess]:
    quota = Quota(capacity=2, per=timedelta(seconds=20))
    with ProviderProcess(Behaviour(quota=quota), Seed()) as process:
        yield process


@pytest.fixture
def simulated(cloud: ProviderProcess) -> Iterator[None]:
    """The simulated source is known."""
    with simulated_source(cloud.address):
        yield


def ask(widgets: WidgetSource, config: Path, name: str) -> Any:
    answer = widgets.knell(config, "plan", f"{widgets.crd.kind}/{name}", "-n", widgets.namespace, "--output", "json")
    assert answer.code == 0, answer.err
    return answer.json


@pytest.mark.usefixtures("simulated")
def test_the_targets_come_in_their_stages_with_reason_and_estimate(
    widgets: WidgetSource, cloud: ProviderProcess
) -> None:
    widgets.create("one", SPEC, finalizers=[FINALIZER])
    before = widgets.get("one")
    config = widgets.config(collector="simulated")
    found = ask(widgets, config, "one")
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
    table = widgets.knell(config, "plan", f"{widgets.crd.resource}/one", "-n", widgets.namespace)
    assert "3 resources would be removed" in table.out
    assert "10s at least" in table.out
    # Nothing was touched: not the object, not the provider, not Redis.
    assert widgets.get("one") == before
    assert cloud.lines() == [] or all(line.method == "GET" for line in cloud.lines())

    async def keys(installation: Installation) -> list[bytes]:
        return [key async for key in installation.connections.client.scan_iter(match=f"{widgets.redis.prefix}:*")]

    assert with_installation(widgets.redis, keys) == []


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
@pytest.mark.usefixtures("simulated")
def test_the_policy_decision_is_shown_with_its_reason(
    widgets: WidgetSource, annotations: dict[str, str], changes: dict[str, Any], kind: str, targets: int
) -> None:
    widgets.create("one", SPEC, annotations=annotations)
    found = ask(widgets, widgets.config(collector="simulated", **changes), "one")
    assert (found["decision"]["kind"], len(found["targets"])) == (kind, targets)
    assert found["decision"]["reason"]


@pytest.mark.usefixtures("simulated")
def test_annotations_of_the_namespace_apply(widgets: WidgetSource) -> None:
    widgets.create("one", SPEC)
    path = f"/api/v1/namespaces/{widgets.namespace}"
    widgets.api.kube.patch(path, {"metadata": {"annotations": {"knell.dev/deletion-policy": "Retain"}}})
    found = ask(widgets, widgets.config(collector="simulated"), "one")
    assert found["decision"]["kind"] == "retain"
    assert "Namespace" in found["decision"]["reason"] or "namespace" in found["decision"]["reason"]


def test_a_missing_finalizer_is_shown(widgets: WidgetSource) -> None:
    widgets.create("one")
    answer = widgets.knell(widgets.config(), "plan", f"{widgets.crd.plural}/one", "-n", widgets.namespace)
    assert answer.code == 0, answer.err
    assert "lives, without our finalizer" in answer.out
    assert "Nothing outside the cluster would be removed." in answer.out


@pytest.mark.usefixtures("simulated")
def test_an_unreadable_spec_holds(widgets: WidgetSource) -> None:
    widgets.create("one", {"targets": "all of them"})
    found = ask(widgets, widgets.config(collector="simulated"), "one")
    assert "does not name its targets" in found["held"]
    assert found["targets"] == []


@pytest.mark.usefixtures("simulated")
def test_it_works_without_redis(widgets: WidgetSource) -> None:
    widgets.create("one", SPEC)
    away = widgets.knell(
        widgets.config(collector="simulated"), "plan", f"{widgets.crd.plural}/one", "-n", widgets.namespace,
        variables={"KNELL_REDIS_URL": "redis://127.0.0.1:1"},
    )  # fmt: skip
    assert away.code == 0, away.err
    assert "Redis does not answer" in away.err
    assert "3 resources would be removed" in away.out
    assert "not known: Redis does not answer" in away.out


# ---- the guard


def counted(widgets: WidgetSource, guard: GuardSettings, *uids: str) -> list[bool]:
    """Other deletions of the source, which its guard counts."""

    async def admit(installation: Installation) -> list[bool]:
        answers = await Guard(installation).admit("widgets", [DeletedObject(uid, 0) for uid in uids], guard)
        return [one.admitted for one in answers]

    found: list[bool] = with_installation(widgets.redis, admit)
    return found


def kept(widgets: WidgetSource) -> dict[str, Any]:
    """What the guard has stored."""

    async def read(installation: Installation) -> dict[str, Any]:
        client, stem = installation.connections.client, installation.shards[0].stem
        scored = {name: await client.zrange(f"{stem}{name}:widgets", 0, -1, withscores=True)
                  for name in ("guard", "passed", "guarded")}  # fmt: skip
        return {**scored, "record": await client.hgetall(f"{stem}source:widgets")}

    found: dict[str, Any] = with_installation(widgets.redis, read)
    return found


def test_it_shows_whether_the_guard_would_hold_it_and_counts_nothing(widgets: WidgetSource) -> None:
    uid = widgets.create("one", finalizers=[FINALIZER])["metadata"]["uid"]
    config = widgets.config(guard={"most": 3, "percent": 100, "window": "1h"})
    guard = GuardSettings(most=3, percent=100, window=timedelta(hours=1))
    assert counted(widgets, guard, "a", "b") == [True, True]
    before = kept(widgets)
    # Repeated calls count nothing.
    for told in [ask(widgets, config, "one")["guard"] for _ in range(3)]:
        assert (told["holds"], told["tripped"], told["counted"], told["limit"]) == (False, None, 2, 3)
        assert "would let it through, 2 of 3 deletions within 1h" in told["says"]
    assert kept(widgets) == before

    assert counted(widgets, guard, "c") == [True]
    before = kept(widgets)
    told = ask(widgets, config, "one")["guard"]
    assert (told["holds"], told["tripped"], told["counted"]) == (True, None, 3)
    assert "would trip and hold it" in told["says"]
    assert kept(widgets) == before

    assert counted(widgets, guard, "d") == [False]
    before = kept(widgets)
    told = ask(widgets, config, "one")["guard"]
    assert told["holds"] is True
    assert told["tripped"] is not None
    assert "`knell guard release widgets`" in told["why"]
    table = widgets.knell(config, "plan", f"{widgets.crd.resource}/one", "-n", widgets.namespace).out
    assert "would hold it, tripped since 20" in table
    assert kept(widgets) == before
    # The same as the guard decides for a real deletion.
    assert counted(widgets, guard, uid) == [False]


def test_what_the_guard_has_let_through_before_is_not_held_although_it_has_tripped(widgets: WidgetSource) -> None:
    uid = widgets.create("one", finalizers=[FINALIZER])["metadata"]["uid"]
    config = widgets.config(guard={"most": 1, "percent": 100})
    assert counted(widgets, GuardSettings(most=1, percent=100), uid, "a") == [True, False]
    told = ask(widgets, config, "one")["guard"]
    assert (told["holds"], told["passed"]) == (False, True)


def test_the_guard_does_not_apply_to_a_retained_object(widgets: WidgetSource) -> None:
    widgets.create("one", annotations={"knell.dev/deletion-policy": "retain"})
    config = widgets.config(guard={"most": 1, "percent": 100})
    counted(widgets, GuardSettings(most=1, percent=100), "a", "b")
    told = ask(widgets, config, "one")["guard"]
    assert (told["asked"], told["holds"]) == (False, False)
    off = ask(widgets, widgets.config(guard={"enabled": False}), "one")["guard"]
    assert (off["asked"], off["limit"]) == (False, None)
