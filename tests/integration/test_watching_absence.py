"""Proofs of absence on the watch side: a 404 counts only under the same CRD, and in the cluster that was meant."""

import asyncio
from pathlib import Path

import pytest

from service.kubernetes import connect
from service.settings import ClusterSettings
from service.watching.absence import MissingObject, prove_absence
from service.watching.cluster_identity import ConfirmedClient, WrongCluster
from tests.api_servers import TestApi
from tests.recording_proxy import RecordingProxy


@pytest.mark.invariant(1)
async def test_a_404_is_no_news_of_an_object_whose_crd_is_another_one_by_now(api: TestApi, tmp_path: Path) -> None:
    crd, namespace = api.crd(), api.namespace()
    missing = [MissingObject("a-uid", namespace, "gone")]
    async with await connect("local", api.settings(tmp_path)) as cluster:
        served = await cluster.discover(crd.resource)
        held = (await prove_absence(cluster, served, missing, "the-uid-of-the-crd-before"))["a-uid"]
        assert held.kind == "held"
        assert "was deleted and installed again" in held.why
        now = await cluster.crd_uid(crd.resource)
        assert (await prove_absence(cluster, served, missing, now))["a-uid"].kind == "gone"


@pytest.mark.invariant(1)
async def test_a_404_of_another_cluster_than_the_one_that_is_meant_is_no_absence(api: TestApi, tmp_path: Path) -> None:
    crd, namespace = api.crd(), api.namespace()
    async with await connect("local", api.settings(tmp_path)) as cluster:
        served = await cluster.discover(crd.resource)
        right = ConfirmedClient(cluster, await cluster.identity())
        assert await right.get(served, namespace, "gone") is None
        wrong = ConfirmedClient(cluster, "the-uid-of-another-cluster")
        with pytest.raises(WrongCluster, match="nothing of it is touched"):
            await wrong.get(served, namespace, "gone")
        assert wrong.wrong.is_set()


async def test_closing_a_client_that_confirms_ends_its_read_and_not_the_calls_of_its_owner(
    api: TestApi, tmp_path: Path
) -> None:
    async with await connect("local", api.settings(tmp_path)) as cluster:
        confirmed = ConfirmedClient(cluster, await cluster.identity())
        asked = asyncio.create_task(confirmed.confirm())
        await asyncio.sleep(0)
        await confirmed.aclose()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert await cluster.identity() == confirmed.uid


@pytest.mark.invariant(1)
@pytest.mark.invariant(7)
async def test_an_object_that_may_not_be_read_is_not_gone(api: TestApi, tmp_path: Path) -> None:
    crd, namespace = api.crd(), api.namespace()
    async with RecordingProxy(api) as proxy:
        way = ClusterSettings(kubeconfig=proxy.kubeconfig(tmp_path / "front.kubeconfig"), context="local")
        async with await connect("local", way) as cluster:
            served, now = await cluster.discover(crd.resource), await cluster.crd_uid(crd.resource)
            proxy.refuse(403, lambda _, path: path.endswith("/hidden"))
            missing = [MissingObject("a-uid", namespace, "hidden"), MissingObject("b-uid", namespace, "gone")]
            proofs = await prove_absence(cluster, served, missing, now)
    assert {uid: proof.kind for uid, proof in proofs.items()} == {"a-uid": "unknown", "b-uid": "gone"}
