"""Clusters restored from a backup are recognised by the counter on their Leases: no missing object counts as deleted
until an operator has accepted the restore."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.contract import VERSION
from service.engine.lease_counters import StoredCounter
from service.engine.restore_detection import LeaseCounter, RestoreDetector
from service.kubernetes import LEASES, KubeObject, KubernetesClient, ServedResource, Unreadable
from service.watching.absence import MissingObject, prove_absence
from tests.api_servers import TestApi
from tests.integration.restorable_cluster import CLUSTER, LEASE, SOURCE, RestorableCluster, restorable_cluster
from tests.redis_servers import TestServer

COMMAND = f"`knell clusters accept-restore {CLUSTER}`"


@pytest.fixture
async def restorable(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[RestorableCluster]:
    redis, crd, home = embedded_server.settings(), api.crd(), api.namespace()
    async with restorable_cluster(api.server, api.kube, redis, tmp_path, crd, home) as made:
        yield made


class LeaseInterceptingClient(KubernetesClient):
    """The same connection; `before` is awaited before each read of a Lease."""

    def __init__(self, cluster: KubernetesClient, before: Any) -> None:
        super().__init__(cluster.name, cluster._calls)
        self._before = before

    async def get(self, served: ServedResource, namespace: str, name: str, **how: Any) -> KubeObject | None:
        if served is LEASES:
            await self._before()
        return await super().get(served, namespace, name, **how)


# ---- the counter


async def test_every_renewal_raises_the_counter_in_the_cluster_and_then_in_redis(restorable: RestorableCluster) -> None:
    await restorable.watch()
    before = await restorable.until_counted()
    for _ in range(3):
        value = await restorable.until_counted(before)
        # Read afterwards: the one in Redis is never ahead.
        assert restorable.counter() >= value > before
        before = value
    noted = await restorable.noted()
    assert noted is not None
    assert noted.uid == restorable.lease()["metadata"]["uid"]
    assert await restorable.restored() == ""


async def test_a_replica_that_takes_over_the_lease_continues_the_counter(restorable: RestorableCluster) -> None:
    await restorable.watch()
    before = await restorable.until_counted(1)
    await restorable.stop()
    handed_back = restorable.counter()
    assert handed_back > before
    assert await restorable.value() == handed_back
    await restorable.watch()
    await restorable.until_counted(handed_back)
    assert await restorable.restored() == ""
    restorable.create("one")
    await restorable.until_remembered(one="lives")
    restorable.delete("one")
    await restorable.until("it is published", restorable.published)


async def test_a_value_that_redis_never_heard_of_is_no_doubt(restorable: RestorableCluster) -> None:
    """Whoever wrote it died before it could tell Redis."""
    await restorable.watch()
    restorable.create("one")
    await restorable.until_remembered(one="lives")
    await restorable.kill()
    restorable.set_back(restorable.counter() + 1)
    restorable.delete("one")
    await restorable.watch()
    await restorable.until("it is published", restorable.published)
    await restorable.until_counted(restorable.counter() - 1)
    assert await restorable.restored() == ""


@pytest.mark.invariant(5)
async def test_with_redis_lost_the_value_of_the_cluster_is_adopted(restorable: RestorableCluster) -> None:
    await restorable.watch()
    before = await restorable.until_counted(2)
    await restorable.installation.caller.command("UNLINK", restorable.witnesses.key)
    assert await restorable.until_counted() > before
    assert await restorable.restored() == ""


async def test_a_renewal_between_two_reads_is_no_doubt(restorable: RestorableCluster) -> None:
    """Redis is read first: it follows the cluster, so that the Lease can only be ahead."""
    await restorable.watch()
    await restorable.until_counted()
    await restorable.stop()

    async def renewed() -> None:
        value = restorable.counter() + 1
        await asyncio.to_thread(restorable.set_back, value)
        noted = await restorable.noted()
        assert noted is not None
        await restorable.witnesses.save(restorable.uid, f"{restorable.home}/{LEASE}", noted.uid, value)

    cluster = LeaseInterceptingClient(restorable.cluster, renewed)
    assert (
        await RestoreDetector(restorable.installation, cluster, restorable.uid, restorable.home, (LEASE,)).check() == ""
    )
    assert await restorable.restored() == ""


# ---- a restored cluster


@pytest.mark.invariant(5)
async def test_nothing_that_is_missing_counts_while_the_counter_is_behind(
    restorable: RestorableCluster, tmp_path: Path
) -> None:
    for name in ("before", "after"):
        restorable.create(name)
    watcher = await restorable.watch()
    await restorable.until_remembered(before="lives", after="lives")
    reached = await restorable.until_counted(3)
    restorable.set_back()
    restorable.delete("after")
    await restorable.until_remembered(after=COMMAND)
    assert "restored from a backup" in (await restorable.remembered())["after"]
    assert await restorable.restored()
    # Renewed over and over, and never over the value of the backup.
    renewed = restorable.lease()["metadata"]["resourceVersion"]
    await restorable.until("it is renewed", lambda: restorable.lease()["metadata"]["resourceVersion"] != renewed)
    assert restorable.counter() == 1
    assert await restorable.value() >= reached
    # What a list misses is held as well.
    before = watcher.share_leases[0].counters.relists
    restorable.delete("before")
    await restorable.inventory.request_relist()
    await restorable.until("it is listed again", lambda: watcher.share_leases[0].counters.relists > before)
    await restorable.until_remembered(before=COMMAND)
    assert await restorable.published() == set()
    highest = max(restorable.counter(), await restorable.value())

    answer = await restorable.knell(tmp_path, "clusters", "accept-restore", CLUSTER, "--yes")
    assert answer.code == 0, answer.err
    assert restorable.counter() > highest

    async def both() -> bool:
        return await restorable.published() == {"before", "after"}

    await restorable.until("both are published", both)
    await restorable.until_counted(highest + 1)
    assert await restorable.restored() == ""


@pytest.mark.invariant(5)
async def test_a_restore_is_recognised_after_a_time_without_a_watch(restorable: RestorableCluster) -> None:
    restorable.create("one")
    await restorable.watch()
    await restorable.until_remembered(one="lives")
    await restorable.until_counted(3)
    await restorable.stop()
    restorable.set_back(2)
    restorable.delete("one")
    await restorable.watch()
    await restorable.until_remembered(one=COMMAND)
    assert await restorable.published() == set()
    assert restorable.counter() == 2


@pytest.mark.invariant(5)
async def test_a_lease_that_was_deleted_or_made_anew_holds_and_says_so(
    restorable: RestorableCluster, tmp_path: Path
) -> None:
    restorable.create("one")
    await restorable.watch()
    await restorable.until_remembered(one="lives")
    await restorable.until_counted()
    await restorable.stop()
    restorable.kube.delete(restorable.lease_path)
    assert "is missing: it was deleted" in await restorable.witness.check()
    assert (await restorable.knell(tmp_path, "clusters", "accept-restore", CLUSTER, "--yes")).code == 0
    await restorable.watch()
    noted = await restorable.until("it is counted anew", restorable.noted)
    await restorable.stop()
    restorable.kube.delete(restorable.lease_path)
    restorable.delete("one")
    await restorable.watch()
    await restorable.until_remembered(one="is another one")
    assert noted.uid in (await restorable.remembered())["one"]
    assert await restorable.published() == set()
    assert restorable.counter() == 0
    assert (await restorable.knell(tmp_path, "clusters", "accept-restore", CLUSTER, "--yes")).code == 0
    await restorable.until("it is published", restorable.published)


@pytest.mark.invariant(5)
async def test_an_absence_counts_only_if_the_witness_was_read_after_it(restorable: RestorableCluster) -> None:
    await restorable.watch()
    await restorable.until_counted(1)
    await restorable.stop()
    served = await restorable.cluster.discover(restorable.crd.resource)
    missing = [MissingObject(f"uid-{number}", restorable.home, f"gone-{number}") for number in range(20)]
    crd = await restorable.cluster.crd_uid(restorable.crd.resource)
    restored, reads = asyncio.Event(), list[str]()

    class RestoringClient(KubernetesClient):
        """Set back by the time the first object is looked for."""

        async def get(self, served: ServedResource, namespace: str, name: str, **how: Any) -> KubeObject | None:
            reads.append(name)
            if not restored.is_set():
                restored.set()
                await asyncio.to_thread(restorable.set_back)
            return await super().get(served, namespace, name, **how)

    cluster = RestoringClient(restorable.cluster.name, restorable.cluster._calls)
    assert await restorable.witness.check() == ""
    witness = RestoreDetector(restorable.installation, cluster, restorable.uid, restorable.home, (LEASE,))
    proofs = await prove_absence(cluster, served, missing, crd, witness.check)
    assert {proof.kind for proof in proofs.values()} == {"held"}
    assert all(COMMAND in proof.why for proof in proofs.values())
    assert reads.count(LEASE) == 1, "one read serves them all"


async def test_the_lease_of_another_cluster_is_no_news_of_this_one(restorable: RestorableCluster) -> None:
    name = f"{restorable.home}/{LEASE}"
    await restorable.witnesses.replace("another", name, StoredCounter(v=VERSION, value=5, uid="a-uid"))
    witness = RestoreDetector(restorable.installation, restorable.cluster, "another", restorable.home, (LEASE,))
    with pytest.raises(Unreadable, match="had uid another"):
        await witness.check()
    assert await restorable.witnesses.restored_clusters() == {}


async def test_a_record_in_redis_that_can_not_be_read_holds_and_is_not_overwritten(
    restorable: RestorableCluster,
) -> None:
    name = f"{restorable.home}/{LEASE}"
    await restorable.installation.caller.command("HSET", restorable.witnesses.key, f"{restorable.uid}/{name}", "torn")
    counter = LeaseCounter(restorable.installation, restorable.cluster, restorable.uid, restorable.home, LEASE)
    assert await counter.next_annotations(None) == {}
    await restorable.witnesses.save(restorable.uid, name, "one", 9)
    assert "can't be read" in await restorable.witness.check()


# ---- resource versions


@pytest.mark.invariant(5)
async def test_a_resource_version_that_went_back_holds_until_a_person_accepts(
    restorable: RestorableCluster, tmp_path: Path
) -> None:
    restorable.create("one")
    await restorable.watch()
    await restorable.until_remembered(one="lives")
    await restorable.stop()
    # What a restored server says is told from what was seen before it.
    field = f"resource_version@{restorable.home}"
    await restorable.inventory.save_state({field: int((await restorable.inventory.state())[field]) + 1_000_000})
    restorable.delete("one")
    await restorable.watch()
    await restorable.until_remembered(one=COMMAND)
    assert "older than the last one seen" in await restorable.restored()
    assert (await restorable.knell(tmp_path, "clusters", "accept-restore", CLUSTER, "--yes")).code == 0
    await restorable.until("it is published", restorable.published)


# ---- what people see


async def test_people_are_shown_the_restored_cluster_and_the_command(
    restorable: RestorableCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.watching.cluster_watch.IDENTITY_CHECK", timedelta(milliseconds=500))
    restorable.create("one")
    watcher = await restorable.watch()
    await restorable.until_remembered(one="lives")
    assert "nothing was changed" in (await restorable.knell(tmp_path, "clusters", "accept-restore", CLUSTER)).out
    await restorable.until_counted(2)
    restorable.set_back()
    restorable.delete("one")
    await restorable.until_remembered(one=COMMAND)
    await restorable.until("the watch side knows", lambda: watcher.cluster_watches[0].restored is not None)
    await restorable.stop()
    listed = (await restorable.knell(tmp_path, "clusters", "list", "--output", "json")).json["clusters"]
    assert [one["state"] for one in listed] == ["restored"]
    assert COMMAND in listed[0]["why"]
    status = await restorable.knell(tmp_path, "status")
    assert f"Cluster {CLUSTER}, since 20" in status.out
    assert f"`knell sources drop {SOURCE}` forgets them" in status.out
    assert f"`knell sources release {SOURCE}`" not in status.out
    findings = (await restorable.knell(tmp_path, "doctor", "--output", "json")).json["findings"]
    (found,) = [one for one in findings if one["check"] == "restored"]
    assert found["state"] == "wrong"
    assert COMMAND in found["mend"]
    released = await restorable.knell(tmp_path, "sources", "release", SOURCE, "--yes")
    assert released.code == 1
    assert COMMAND in released.err
    asked = await restorable.knell(tmp_path, "clusters", "accept-restore", CLUSTER, answer="n\n")
    assert "widgets holds 1 object" in asked.out
    assert asked.code == 1
    assert await restorable.restored()
