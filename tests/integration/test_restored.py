"""A cluster that was restored from a backup is recognised by the counter on its Leases: nothing that is missing in it
counts as deleted until a person has accepted that."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.contract import VERSION
from service.engine.lease_witness import LeaseCounter, Witness
from service.engine.witnesses import Noted
from service.kubernetes import LEASES, Cluster, Live, Served, Unreadable
from service.kubernetes.definitions import crd_uid
from service.watching.proving import Missing, prove
from tests.clusters import TestApi
from tests.integration.witnessed import CLUSTER, LEASE, SOURCE, Witnessed, witnessing
from tests.servers import TestServer

COMMAND = f"`knell clusters accept-restore {CLUSTER}`"


@pytest.fixture
async def here(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[Witnessed]:
    redis, crd, home = embedded_server.settings(), api.crd(), api.namespace()
    async with witnessing(api.server, api.kube, redis, tmp_path, crd, home) as made:
        yield made


class Watching(Cluster):
    """The same connection; `before` is awaited before each read of a Lease."""

    def __init__(self, cluster: Cluster, before: Any) -> None:
        super().__init__(cluster.name, cluster._calls)
        self._before = before

    async def get(self, served: Served, namespace: str, name: str, **how: Any) -> Live | None:
        if served is LEASES:
            await self._before()
        return await super().get(served, namespace, name, **how)


# ---- the counter


async def test_every_renewal_raises_the_counter_in_the_cluster_and_then_in_redis(here: Witnessed) -> None:
    await here.watch()
    before = await here.until_counted()
    for _ in range(3):
        value = await here.until_counted(before)
        # Read afterwards: the one in Redis is never ahead.
        assert here.counter() >= value > before
        before = value
    noted = await here.noted()
    assert noted is not None
    assert noted.uid == here.lease()["metadata"]["uid"]
    assert await here.restored() == ""


async def test_whoever_takes_the_lease_over_counts_on(here: Witnessed) -> None:
    await here.watch()
    before = await here.until_counted(1)
    await here.stop()
    handed_back = here.counter()
    assert handed_back > before
    assert await here.value() == handed_back
    await here.watch()
    await here.until_counted(handed_back)
    assert await here.restored() == ""
    here.create("one")
    await here.until_remembered(one="lives")
    here.delete("one")
    await here.until("it is published", here.published)


async def test_a_value_that_redis_never_heard_of_is_no_doubt(here: Witnessed) -> None:
    """Whoever wrote it died before it could tell Redis."""
    await here.watch()
    here.create("one")
    await here.until_remembered(one="lives")
    await here.kill()
    here.set_back(here.counter() + 1)
    here.delete("one")
    await here.watch()
    await here.until("it is published", here.published)
    await here.until_counted(here.counter() - 1)
    assert await here.restored() == ""


@pytest.mark.invariant(5)
async def test_with_redis_lost_the_value_of_the_cluster_is_adopted(here: Witnessed) -> None:
    await here.watch()
    before = await here.until_counted(2)
    await here.installation.caller.command("UNLINK", here.witnesses.key)
    assert await here.until_counted() > before
    assert await here.restored() == ""


async def test_a_renewal_between_two_reads_is_no_doubt(here: Witnessed) -> None:
    """Redis is read first: it follows the cluster, so that the Lease can only be ahead."""
    await here.watch()
    await here.until_counted()
    await here.stop()

    async def renewed() -> None:
        value = here.counter() + 1
        await asyncio.to_thread(here.set_back, value)
        noted = await here.noted()
        assert noted is not None
        await here.witnesses.note(here.uid, f"{here.home}/{LEASE}", noted.uid, value)

    cluster = Watching(here.cluster, renewed)
    assert await Witness(here.installation, cluster, here.uid, here.home, (LEASE,)).doubt() == ""
    assert await here.restored() == ""


# ---- a restored cluster


@pytest.mark.invariant(5)
async def test_nothing_that_is_missing_counts_while_the_counter_is_behind(here: Witnessed, tmp_path: Path) -> None:
    for name in ("before", "after"):
        here.create(name)
    watcher = await here.watch()
    await here.until_remembered(before="lives", after="lives")
    reached = await here.until_counted(3)
    here.set_back()
    here.delete("after")
    await here.until_remembered(after=COMMAND)
    assert "restored from a backup" in (await here.remembered())["after"]
    assert await here.restored()
    # Renewed over and over, and never over the value of the backup.
    renewed = here.lease()["metadata"]["resourceVersion"]
    await here.until("it is renewed", lambda: here.lease()["metadata"]["resourceVersion"] != renewed)
    assert here.counter() == 1
    assert await here.value() >= reached
    # What a list misses is held as well.
    before = watcher.posts[0].tally.relists
    here.delete("before")
    await here.inventory.ask_for_relist()
    await here.until("it is listed again", lambda: watcher.posts[0].tally.relists > before)
    await here.until_remembered(before=COMMAND)
    assert await here.published() == set()
    highest = max(here.counter(), await here.value())

    answer = await here.knell(tmp_path, "clusters", "accept-restore", CLUSTER, "--yes")
    assert answer.code == 0, answer.err
    assert here.counter() > highest

    async def both() -> bool:
        return await here.published() == {"before", "after"}

    await here.until("both are published", both)
    await here.until_counted(highest + 1)
    assert await here.restored() == ""


@pytest.mark.invariant(5)
async def test_a_restore_is_recognised_after_a_time_in_which_nobody_watched(here: Witnessed) -> None:
    here.create("one")
    await here.watch()
    await here.until_remembered(one="lives")
    await here.until_counted(3)
    await here.stop()
    here.set_back(2)
    here.delete("one")
    await here.watch()
    await here.until_remembered(one=COMMAND)
    assert await here.published() == set()
    assert here.counter() == 2


@pytest.mark.invariant(5)
async def test_a_lease_that_was_deleted_or_made_anew_holds_and_says_so(here: Witnessed, tmp_path: Path) -> None:
    here.create("one")
    await here.watch()
    await here.until_remembered(one="lives")
    await here.until_counted()
    await here.stop()
    here.kube.delete(here.lease_path)
    assert "is missing: it was deleted" in await here.witness.doubt()
    assert (await here.knell(tmp_path, "clusters", "accept-restore", CLUSTER, "--yes")).code == 0
    await here.watch()
    noted = await here.until("it is counted anew", here.noted)
    await here.stop()
    here.kube.delete(here.lease_path)
    here.delete("one")
    await here.watch()
    await here.until_remembered(one="is another one")
    assert noted.uid in (await here.remembered())["one"]
    assert await here.published() == set()
    assert here.counter() == 0
    assert (await here.knell(tmp_path, "clusters", "accept-restore", CLUSTER, "--yes")).code == 0
    await here.until("it is published", here.published)


@pytest.mark.invariant(5)
async def test_an_absence_counts_only_if_the_witness_was_read_after_it(here: Witnessed) -> None:
    await here.watch()
    await here.until_counted(1)
    await here.stop()
    served = await here.cluster.discover(here.crd.resource)
    missing = [Missing(f"uid-{number}", here.home, f"gone-{number}") for number in range(20)]
    crd = await crd_uid(here.cluster, here.crd.resource)
    restored, reads = asyncio.Event(), list[str]()

    class Restored(Cluster):
        """Set back by the time the first object is looked for."""

        async def get(self, served: Served, namespace: str, name: str, **how: Any) -> Live | None:
            reads.append(name)
            if not restored.is_set():
                restored.set()
                await asyncio.to_thread(here.set_back)
            return await super().get(served, namespace, name, **how)

    cluster = Restored(here.cluster.name, here.cluster._calls)
    assert await here.witness.doubt() == ""
    witness = Witness(here.installation, cluster, here.uid, here.home, (LEASE,))
    proofs = await prove(cluster, served, missing, crd, witness.doubt)
    assert {proof.kind for proof in proofs.values()} == {"held"}
    assert all(COMMAND in proof.why for proof in proofs.values())
    assert reads.count(LEASE) == 1, "one read serves them all"


async def test_the_lease_of_another_cluster_is_no_news_of_this_one(here: Witnessed) -> None:
    name = f"{here.home}/{LEASE}"
    await here.witnesses.replace("another", name, Noted(v=VERSION, value=5, uid="a-uid"))
    witness = Witness(here.installation, here.cluster, "another", here.home, (LEASE,))
    with pytest.raises(Unreadable, match="had uid another"):
        await witness.doubt()
    assert await here.witnesses.restored() == {}


async def test_a_record_in_redis_that_can_not_be_read_holds_and_is_not_overwritten(here: Witnessed) -> None:
    name = f"{here.home}/{LEASE}"
    await here.installation.caller.command("HSET", here.witnesses.key, f"{here.uid}/{name}", "torn")
    counter = LeaseCounter(here.installation, here.cluster, here.uid, here.home, LEASE)
    assert await counter.following(None) == {}
    await here.witnesses.note(here.uid, name, "one", 9)
    assert "can't be read" in await here.witness.doubt()


# ---- resource versions


@pytest.mark.invariant(5)
async def test_a_resource_version_that_went_back_holds_until_a_person_accepts(here: Witnessed, tmp_path: Path) -> None:
    here.create("one")
    await here.watch()
    await here.until_remembered(one="lives")
    await here.stop()
    # What a restored server says is told from what was seen before it.
    field = f"resource_version@{here.home}"
    await here.inventory.note({field: int((await here.inventory.facts())[field]) + 1_000_000})
    here.delete("one")
    await here.watch()
    await here.until_remembered(one=COMMAND)
    assert "older than the last one seen" in await here.restored()
    assert (await here.knell(tmp_path, "clusters", "accept-restore", CLUSTER, "--yes")).code == 0
    await here.until("it is published", here.published)


# ---- what people see


async def test_people_are_shown_the_restored_cluster_and_the_command(
    here: Witnessed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.watching.site.LOOK", timedelta(milliseconds=500))
    here.create("one")
    watcher = await here.watch()
    await here.until_remembered(one="lives")
    assert "nothing was changed" in (await here.knell(tmp_path, "clusters", "accept-restore", CLUSTER)).out
    await here.until_counted(2)
    here.set_back()
    here.delete("one")
    await here.until_remembered(one=COMMAND)
    await here.until("the watch side knows", lambda: watcher.sites[0].restored is not None)
    await here.stop()
    listed = (await here.knell(tmp_path, "clusters", "list", "--output", "json")).json["clusters"]
    assert [one["state"] for one in listed] == ["restored"]
    assert COMMAND in listed[0]["why"]
    status = await here.knell(tmp_path, "status")
    assert f"Cluster {CLUSTER}, since 20" in status.out
    assert f"`knell sources drop {SOURCE}` forgets them" in status.out
    assert f"`knell sources release {SOURCE}`" not in status.out
    findings = (await here.knell(tmp_path, "doctor", "--output", "json")).json["findings"]
    (found,) = [one for one in findings if one["check"] == "restored"]
    assert found["state"] == "wrong"
    assert COMMAND in found["mend"]
    released = await here.knell(tmp_path, "sources", "release", SOURCE, "--yes")
    assert released.code == 1
    assert COMMAND in released.err
    asked = await here.knell(tmp_path, "clusters", "accept-restore", CLUSTER, answer="n\n")
    assert "widgets holds 1 object" in asked.out
    assert asked.code == 1
    assert await here.restored()
