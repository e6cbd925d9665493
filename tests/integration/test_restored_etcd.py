"""etcd restored from a snapshot, in both ways that operators do it, under a running watch side.
Objects created since the snapshot are missing then, and none of them may count as deleted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from standins.controlplane import ControlPlane
from tests.api_servers import need_real
from tests.integration.restorable_cluster import CLUSTER, restorable_cluster
from tests.integration.test_standin_controlplane import need_snapshots
from tests.kube import Crd, Kube
from tests.redis_servers import TestServer

need_real()
pytestmark = pytest.mark.long

CRD = Crd(group="knell.test", plural="restoredwidgets")


@pytest.fixture
def own_plane() -> Iterator[ControlPlane]:
    with ControlPlane(controllers=False) as started:
        need_snapshots(started)
        yield started


@pytest.mark.invariant(5)
@pytest.mark.parametrize("bump", [0, 1_000_000_000], ids=["plain", "bump-revision"])
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "stopped"])
async def test_a_restored_etcd_is_recognised_and_what_it_misses_is_held(
    own_plane: ControlPlane, embedded_server: TestServer, tmp_path: Path, bump: int, watched: bool
) -> None:
    kube = Kube(own_plane.url, own_plane.token, own_plane.ca)
    kube.install(CRD)
    async with restorable_cluster(own_plane, kube, embedded_server.settings(), tmp_path, CRD, "default") as here:
        here.create("before")
        await here.watch()
        await here.until_remembered(before="lives")
        await here.until_counted(1)
        own_plane.save_snapshot(tmp_path / "snapshot.db")
        saved = here.counter()
        for number in range(3):
            here.create(f"since-{number}")
        since = {f"since-{number}": "lives" for number in range(3)}
        await here.until_remembered(**since)
        await here.until_counted(saved + 1)
        if not watched:
            await here.stop()
        own_plane.restore_snapshot(tmp_path / "snapshot.db", bump_revision=bump)
        if not bump:
            # It moves past the last version that was seen, so that no version tells.
            for number in range(200):
                kube.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": f"c{number}"}})
        if not watched:
            await here.watch()
        await here.until_remembered(**dict.fromkeys(since, f"`knell clusters accept-restore {CLUSTER}`"))
        assert await here.published() == set()
        assert here.counter() <= saved, "the value of the backup is never overwritten"
        assert (await here.remembered())["before"] == "lives"
        highest = await here.value()

        answer = await here.knell(tmp_path, "clusters", "accept-restore", CLUSTER, "--yes")
        assert answer.code == 0, answer.err
        assert here.counter() > highest

        async def published() -> bool:
            return await here.published() == set(since)

        await here.until("what is missing is published", published)
        assert await here.restored() == ""
        here.delete("before")

        async def also() -> bool:
            return "before" in await here.published()

        await here.until("what is deleted from now on is published", also)
