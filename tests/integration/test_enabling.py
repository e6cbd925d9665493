"""The moment of first enabling, kept in the cluster: written once, agreed on by all, and never guessed at."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from service.cluster import Cluster, connect
from service.watching.enabling import NotEnabled, first_enabled, forget_all
from tests.clusters import TestApi

FIRST = datetime(2026, 1, 31, 12, 0, 0, 999_000, tzinfo=UTC)


@pytest.fixture
async def cluster(api: TestApi, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with await connect("here", api.settings(tmp_path)) as found:
        yield found


async def test_replicas_that_come_at_once_agree(api: TestApi, cluster: Cluster) -> None:
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


async def test_what_is_kept_and_no_time_is_never_overwritten(api: TestApi, cluster: Cluster) -> None:
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
        assert await forget_all(cluster, namespace)
    assert not await forget_all(cluster, namespace)


async def test_a_missing_namespace_says_what_to_create(cluster: Cluster) -> None:
    with pytest.raises(NotEnabled, match="kubectl create namespace nowhere"):
        await first_enabled(cluster, "nowhere", "a")
