"""`clusterctl move`, as in its code: pause, copy with finalizers, overwrite the annotations, strip, delete.
The cluster continues under another management cluster, and so do all its resources on AWS."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.policy.capi import DELETE_FOR_MOVE
from service.sources.capa import AWS_FINALIZER, EXTERNAL_RESOURCE_GC
from standins.kubernetes_api import EmbeddedApi
from tests.capi import AWS_CLUSTERS, AWS_MANAGED_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, CLUSTERS, CapiObjects
from tests.kube import Crd, Kube
from tests.scenarios.aws.account_contents import assert_gone
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.aws.capi_clusters import CapiClusters, Infra
from tests.scenarios.aws.cluster_resources import a_few

pytestmark = pytest.mark.long

CAPA_FINALIZERS = {
    "unmanaged": "awscluster.infrastructure.cluster.x-k8s.io",
    "managed": "awsmanagedcontrolplane.controlplane.cluster.x-k8s.io",
}
KINDS = {"unmanaged": AWS_CLUSTERS, "managed": AWS_MANAGED_CONTROL_PLANES}
on_both = pytest.mark.parametrize("kind", KINDS)


async def made(scenario: AwsScenario, kind: str, name: str, **given: Any) -> Infra:
    return await (scenario.managed(name, **given) if kind == "managed" else scenario.unmanaged(name, **given))


@pytest.fixture
def there() -> Iterator[EmbeddedApi]:
    with EmbeddedApi() as api:
        yield api


@on_both
async def test_a_moved_cluster_keeps_everything_and_is_collected_where_it_was_moved_to(
    scenario: AwsScenario, there: EmbeddedApi, tmp_path: Path, kind: str
) -> None:
    kube = Kube(there.url, there.token, there.ca)
    kube.create("/api/v1/namespaces", {"metadata": {"name": scenario.namespace}})
    kube.create("/api/v1/namespaces", {"metadata": {"name": scenario.home}})
    theirs = CapiClusters(kube, scenario.namespace, scenario.builder)
    way = {"kubeconfig": str(there.kubeconfig(tmp_path / "there")), "context": "local"}
    scenario.document["clusters"]["there"] = way
    scenario.document["sources"]["moved"] = scenario.source(KINDS[kind], cluster="there")
    await scenario.start()
    finalizers = [CAPA_FINALIZERS[kind]]
    prod = await made(scenario, kind, "prod", finalizers=finalizers)
    # Its opt-out is lost on the way: clusterctl overwrites all annotations.
    kept = await made(scenario, kind, "kept", finalizers=finalizers, annotations={EXTERNAL_RESOURCE_GC: "false"})
    had = await a_few(scenario.builder, prod.tag, prod.vpc)
    await a_few(scenario.builder, kept.tag, kept.vpc)
    before = await scenario.account_contents()
    await scenario.until_marked(prod)

    copies = [clusterctl_move(scenario.capi, theirs.capi, infra) for infra in (prod, kept)]
    for infra in (prod, kept):
        assert scenario.is_gone(infra), "a finalizer was put back"
    moved = msgspec.structs.replace(prod, uid=copies[0])
    assert AWS_FINALIZER in theirs.finalizers(moved)
    # One more, made and deleted here, shows that whatever there was to see has been seen.
    other = await made(scenario, kind, "other")
    await scenario.until_marked(other)
    await scenario.delete(other)
    await scenario.until_released(other)
    assert {view.name for view in await scenario.deletions()} == {other.name}
    assert await scenario.changes() == []
    assert_gone(before, await scenario.account_contents(), ())

    kube.patch(moved.path, {"metadata": {"finalizers": [AWS_FINALIZER]}})
    await theirs.delete(moved)
    await scenario.until("it is collected where it lives", lambda: theirs.is_gone(moved))
    assert_gone(before, await scenario.account_contents(), had.ids)


@on_both
async def test_a_paused_cluster_in_deletion_waits_and_one_that_is_moved_is_released(
    scenario: AwsScenario, kind: str
) -> None:
    await scenario.start()
    infra = await made(scenario, kind, "prod")
    await a_few(scenario.builder, infra.tag, infra.vpc)
    before = await scenario.account_contents()
    await scenario.until_marked(infra)
    scenario.capi.pause("prod")
    await scenario.delete(infra)
    await scenario.until_told(infra, "paused", "spec.paused")
    assert scenario.marked(infra)
    scenario.annotate(infra, {DELETE_FOR_MOVE: ""})
    await scenario.until_released(infra)
    assert await scenario.changes() == []
    assert_gone(before, await scenario.account_contents(), ())


@on_both
async def test_what_belongs_to_a_paused_cluster_gets_no_finalizer_and_none_back(
    scenario: AwsScenario, kind: str
) -> None:
    """A clusterctl from before the annotation says by the pause alone that it moves something."""
    await scenario.start()
    fresh, prod = await made(scenario, kind, "fresh", paused=True), await made(scenario, kind, "prod")
    await a_few(scenario.builder, prod.tag, prod.vpc)
    before = await scenario.account_contents()
    await scenario.until_marked(prod)
    scenario.capi.pause("prod")
    scenario.kube.patch(prod.path, {"metadata": {"finalizers": []}})
    other = await scenario.unmanaged("other")
    await scenario.until_marked(other)
    await scenario.stays("neither is marked", lambda: not scenario.marked(fresh) and not scenario.marked(prod))
    for infra in (fresh, prod):
        await scenario.delete(infra)
        assert scenario.is_gone(infra)
    await scenario.delete(other)
    await scenario.until_released(other)
    assert {view.name for view in await scenario.deletions()} == {other.name}
    assert_gone(before, {id_: text for id_, text in (await scenario.account_contents()).items() if id_ in before}, ())


def clusterctl_move(source: CapiObjects, target: CapiObjects, infra: Infra) -> str:
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


def _copied(
    source: CapiObjects, target: CapiObjects, crd: Crd, name: str, owner: object = None
) -> dict[str, dict[str, str]]:
    """Without its version and its owners, with its finalizers; its status stays behind."""
    found = source.get(crd, name)
    meta = {key: found["metadata"].get(key) for key in ("name", "labels", "annotations", "finalizers")}
    if owner is not None:
        meta["ownerReferences"] = target.owned_by(owner)["ownerReferences"]
    body = {**found, "metadata": {key: value for key, value in meta.items() if value}}
    body.pop("status", None)
    made: dict[str, dict[str, str]] = target.kube.create(crd.path(target.namespace), body)
    return made
