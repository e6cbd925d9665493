"""`clusterctl move`, played as its code has it: pause, copy with finalizers, overwrite the annotations, strip, delete.
The cluster lives on under another management cluster, and so does all that it has on AWS."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract.aws import AWS_FINALIZER, DELETE_FOR_MOVE, EXTERNAL_RESOURCE_GC
from standins.api import EmbeddedApi
from tests.capi import AWS_CLUSTERS, AWS_MANAGED_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, CLUSTERS, Capi
from tests.kube import Crd, Kube
from tests.scenarios.aws.belongings import a_few
from tests.scenarios.aws.clusters import Clusters, Infra
from tests.scenarios.aws.holdings import assert_gone
from tests.scenarios.aws.stage import Stage

pytestmark = pytest.mark.long

CAPA_FINALIZERS = {
    "unmanaged": "awscluster.infrastructure.cluster.x-k8s.io",
    "managed": "awsmanagedcontrolplane.controlplane.cluster.x-k8s.io",
}
KINDS = {"unmanaged": AWS_CLUSTERS, "managed": AWS_MANAGED_CONTROL_PLANES}
on_both = pytest.mark.parametrize("kind", KINDS)


async def made(stage: Stage, kind: str, name: str, **given: Any) -> Infra:
    return await (stage.managed(name, **given) if kind == "managed" else stage.unmanaged(name, **given))


@pytest.fixture
def there() -> Iterator[EmbeddedApi]:
    with EmbeddedApi() as api:
        yield api


@on_both
async def test_a_moved_cluster_keeps_everything_and_is_collected_where_it_was_moved_to(
    stage: Stage, there: EmbeddedApi, tmp_path: Path, kind: str
) -> None:
    kube = Kube(there.url, there.token, there.ca)
    kube.create("/api/v1/namespaces", {"metadata": {"name": stage.namespace}})
    kube.create("/api/v1/namespaces", {"metadata": {"name": stage.home}})
    theirs = Clusters(kube, stage.namespace, stage.world)
    way = {"kubeconfig": str(there.kubeconfig(tmp_path / "there")), "context": "local"}
    stage.document["clusters"]["there"] = way
    stage.document["sources"]["moved"] = stage.source(KINDS[kind], cluster="there")
    await stage.start()
    finalizers = [CAPA_FINALIZERS[kind]]
    prod = await made(stage, kind, "prod", finalizers=finalizers)
    # Its opt-out is lost on the way: clusterctl overwrites all annotations.
    kept = await made(stage, kind, "kept", finalizers=finalizers, annotations={EXTERNAL_RESOURCE_GC: "false"})
    had = await a_few(stage.world, prod.tag, prod.vpc)
    await a_few(stage.world, kept.tag, kept.vpc)
    before = await stage.holdings()
    await stage.until_marked(prod)

    copies = [clusterctl_move(stage.capi, theirs.capi, infra) for infra in (prod, kept)]
    for infra in (prod, kept):
        assert stage.is_gone(infra), "somebody put a finalizer back"
    moved = msgspec.structs.replace(prod, uid=copies[0])
    assert AWS_FINALIZER in theirs.finalizers(moved)
    # One more, made and deleted here, shows that whatever there was to see has been seen.
    other = await made(stage, kind, "other")
    await stage.until_marked(other)
    await stage.delete(other)
    await stage.until_released(other)
    assert {view.name for view in await stage.deletions()} == {other.name}
    assert await stage.changes() == []
    assert_gone(before, await stage.holdings(), ())

    kube.patch(moved.path, {"metadata": {"finalizers": [AWS_FINALIZER]}})
    await theirs.delete(moved)
    await stage.until("it is collected where it lives", lambda: theirs.is_gone(moved))
    assert_gone(before, await stage.holdings(), had.ids)


@on_both
async def test_a_paused_cluster_that_is_going_waits_and_one_that_moves_after_all_is_let_go(
    stage: Stage, kind: str
) -> None:
    await stage.start()
    infra = await made(stage, kind, "prod")
    await a_few(stage.world, infra.tag, infra.vpc)
    before = await stage.holdings()
    await stage.until_marked(infra)
    stage.capi.pause("prod")
    await stage.delete(infra)
    await stage.until_told(infra, "paused", "spec.paused")
    assert stage.marked(infra)
    stage.annotate(infra, {DELETE_FOR_MOVE: ""})
    await stage.until_released(infra)
    assert await stage.changes() == []
    assert_gone(before, await stage.holdings(), ())


@on_both
async def test_what_belongs_to_a_paused_cluster_gets_no_finalizer_and_none_back(stage: Stage, kind: str) -> None:
    """A clusterctl from before the annotation says by the pause alone that it moves something."""
    await stage.start()
    fresh, prod = await made(stage, kind, "fresh", paused=True), await made(stage, kind, "prod")
    await a_few(stage.world, prod.tag, prod.vpc)
    before = await stage.holdings()
    await stage.until_marked(prod)
    stage.capi.pause("prod")
    stage.kube.patch(prod.path, {"metadata": {"finalizers": []}})
    other = await stage.unmanaged("other")
    await stage.until_marked(other)
    await stage.stays("neither is marked", lambda: not stage.marked(fresh) and not stage.marked(prod))
    for infra in (fresh, prod):
        await stage.delete(infra)
        assert stage.is_gone(infra)
    await stage.delete(other)
    await stage.until_released(other)
    assert {view.name for view in await stage.deletions()} == {other.name}
    assert_gone(before, {id_: text for id_, text in (await stage.holdings()).items() if id_ in before}, ())


def clusterctl_move(source: Capi, target: Capi, infra: Infra) -> str:
    """One Cluster with what belongs to it; the uid of the copy of the object that we watch."""
    source.pause(infra.cluster)
    owner = _copied(source, target, CLUSTERS, infra.cluster)
    parts = [(infra.crd, infra.name)]
    if infra.crd is AWS_MANAGED_CONTROL_PLANES:
        parts.append((AWS_MANAGED_CLUSTERS, infra.cluster))
    uid, *_ = [_copied(source, target, crd, name, owner)["metadata"]["uid"] for crd, name in parts]
    for crd, name in (*parts, (CLUSTERS, infra.cluster)):
        path = crd.path(source.namespace, name)
        mark = {"op": "add", "path": "/metadata/annotations", "value": {DELETE_FOR_MOVE: ""}}
        source.kube.patch(path, [mark], "json")
        source.kube.patch(path, {"metadata": {"finalizers": []}})
        source.kube.delete(path)
    target.pause(infra.cluster, paused=False)
    return uid


def _copied(source: Capi, target: Capi, crd: Crd, name: str, owner: object = None) -> dict[str, dict[str, str]]:
    """Without its version and its owners, with its finalizers; its status stays behind."""
    found = source.get(crd, name)
    meta = {key: found["metadata"].get(key) for key in ("name", "labels", "annotations", "finalizers")}
    if owner is not None:
        meta["ownerReferences"] = target.owned_by(owner)["ownerReferences"]
    body = {**found, "metadata": {key: value for key, value in meta.items() if value}}
    body.pop("status", None)
    made: dict[str, dict[str, str]] = target.kube.create(crd.path(target.namespace), body)
    return made
