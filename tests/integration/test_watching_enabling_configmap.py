"""The time of first enabling in the ConfigMap: written once, the same for all replicas, and never guessed."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import web
from structlog.testing import LogCapture

from service.kubernetes import KubernetesClient, Unreadable, connect
from service.watching import enabling_configmap
from service.watching.enabling_configmap import NotEnabled, delete_configmap, first_enabled
from tests.api_servers import TestApi
from tests.scripted_api import namespace as there
from tests.scripted_api import scripted_api, settings_for, status

FIRST = datetime(2026, 1, 31, 12, 0, 0, 999_000, tzinfo=UTC)


@pytest.fixture
async def cluster(api: TestApi, tmp_path: Path) -> AsyncIterator[KubernetesClient]:
    async with await connect("here", api.settings(tmp_path)) as found:
        yield found


async def test_replicas_that_come_at_once_agree(api: TestApi, cluster: KubernetesClient) -> None:
    namespace = api.namespace()
    moments = [FIRST + timedelta(hours=number) for number in range(10)]

    def come(at: datetime) -> Coroutine[Any, Any, datetime]:
        return first_enabled(cluster, namespace, f"s{at.hour % 2}", lambda: at)

    answers = await asyncio.gather(*map(come, moments))
    assert len(set(answers[::2])) == 1
    assert len(set(answers[1::2])) == 1
    # In whole seconds, as objects have them.
    assert {answer.microsecond for answer in answers} == {0}
    assert {answer + timedelta(milliseconds=999) for answer in answers} <= set(moments)
    later = [await first_enabled(cluster, namespace, f"s{number}") for number in (0, 1)]
    assert later == [answers[0], answers[1]]
    found = api.kube.get(f"/api/v1/namespaces/{namespace}/configmaps/knell-sources")
    assert found is not None
    assert set(found["data"]) == {"s0", "s1"}


async def test_the_moment_is_that_of_the_api_server_and_not_of_this_process(
    api: TestApi, cluster: KubernetesClient, tmp_path: Path
) -> None:
    namespace, moment = api.namespace(), datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    kept: list[Any] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        """A server whose clock is an hour behind ours."""
        if request.method == "POST":
            kept.append(await request.json())
            kept[0]["metadata"]["resourceVersion"] = "1"
        if kept:
            return web.json_response(kept[0])
        if request.path.endswith("/configmaps/knell-sources"):
            return status(404, "NotFound", name="knell-sources", kind="configmaps")
        found = there("kube-system")
        found.headers["Date"] = format_datetime(moment, usegmt=True)
        return found

    async with scripted_api(answer) as address, await connect("late", settings_for(address, tmp_path)) as late:
        assert await first_enabled(late, "knell", "a") == moment
    assert kept[0]["data"] == {"a": moment.strftime("%Y-%m-%dT%H:%M:%SZ")}
    found = await first_enabled(cluster, namespace, "a")
    made = api.kube.get(f"/api/v1/namespaces/{namespace}/configmaps/knell-sources")
    assert made is not None
    created = datetime.fromisoformat(made["metadata"]["creationTimestamp"])
    assert timedelta(0) <= created - found < timedelta(seconds=30)


async def test_a_server_that_does_not_say_the_time_enables_nothing(tmp_path: Path) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.method)
        if request.path.endswith("/configmaps/knell-sources"):
            return status(404, "NotFound", name="knell-sources", kind="configmaps")
        found = there("kube-system")
        found.headers["Date"] = "noon"
        return found

    async with scripted_api(answer) as address, await connect("mute", settings_for(address, tmp_path)) as mute:
        with pytest.raises(Unreadable, match="what time it is"):
            await first_enabled(mute, "knell", "a")
    assert "POST" not in asked


async def test_what_is_kept_and_no_time_is_never_overwritten(api: TestApi, cluster: KubernetesClient) -> None:
    namespace = api.namespace()
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for text in ("yesterday", "2026-01-31T12:00:00"):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knell-sources"}, "data": {"a": text}}
        api.kube.create(path, body)
        with pytest.raises(NotEnabled, match="which is no time"):
            await first_enabled(cluster, namespace, "a")
        found = api.kube.get(f"{path}/knell-sources")
        assert found is not None
        assert found["data"] == {"a": text}
        assert await delete_configmap(cluster, namespace)
    assert not await delete_configmap(cluster, namespace)


async def test_a_missing_namespace_says_what_to_create(cluster: KubernetesClient) -> None:
    with pytest.raises(NotEnabled, match="kubectl create namespace nowhere"):
        await first_enabled(cluster, "nowhere", "a")


# ---- with a copy in Redis

EARLY, LATE = "2026-01-31T12:00:00Z", "2026-03-01T00:00:00Z"


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> LogCapture:
    """Whatever level a command of another test has set in this process."""
    capture, every = LogCapture(), structlog.make_filtering_bound_logger(0)
    monkeypatch.setattr(
        enabling_configmap, "log", structlog.wrap_logger(None, processors=[capture], wrapper_class=every)
    )
    return capture


def keep(api: TestApi, namespace: str, **data: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knell-sources"}, "data": data}
    api.kube.create(f"/api/v1/namespaces/{namespace}/configmaps", body)


def kept(api: TestApi, namespace: str) -> Any:
    found = api.kube.get(f"/api/v1/namespaces/{namespace}/configmaps/knell-sources")
    return None if found is None else found["data"]


@pytest.mark.invariant(5)
@pytest.mark.parametrize("left", [{}, {"other": LATE}], ids=["no ConfigMap", "no entry"])
async def test_a_moment_that_was_lost_in_the_cluster_is_written_again_from_its_copy(
    api: TestApi, cluster: KubernetesClient, logs: LogCapture, left: dict[str, str]
) -> None:
    namespace = api.namespace()
    if left:
        keep(api, namespace, **left)
    found = await first_enabled(cluster, namespace, "a", copy=EARLY)
    assert found == datetime.fromisoformat(EARLY)
    assert kept(api, namespace) == {**left, "a": EARLY}
    assert ["lost in the cluster" in line["event"] for line in logs.entries] == [True]


@pytest.mark.parametrize(("here", "copy"), [(EARLY, LATE), (LATE, EARLY)])
async def test_of_two_moments_that_disagree_the_earlier_counts_and_both_stay(
    api: TestApi, cluster: KubernetesClient, logs: LogCapture, here: str, copy: str
) -> None:
    namespace = api.namespace()
    keep(api, namespace, a=here)
    assert await first_enabled(cluster, namespace, "a", copy=copy) == datetime.fromisoformat(EARLY)
    assert [(line["kept"], line["copy"]) for line in logs.entries if "disagree" in line["event"]] == [(here, copy)]
    assert kept(api, namespace) == {"a": here}


async def test_a_copy_that_is_no_time_enables_nothing(api: TestApi, cluster: KubernetesClient) -> None:
    namespace = api.namespace()
    with pytest.raises(NotEnabled, match="the copy in Redis says 'yesterday' for source a, which is no time"):
        await first_enabled(cluster, namespace, "a", copy="yesterday")
    assert kept(api, namespace) is None
