"""Clusters on AWS on the watch side: their own finalizer and annotation, and never on a cluster that is being moved."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract.names import FINALIZER, GC
from service.policy.capi import CLUSTER_NAME, CLUSTER_PAUSED, DELETE_FOR_MOVE
from service.settings import FeatureSettings, SourceSettings
from service.sources.capa import AWS_FINALIZER, CAPA, EXTERNAL_RESOURCE_GC, FEATURE
from service.sources.registry import source_named
from tests.api_servers import TestApi
from tests.capi import AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, CLUSTERS, CapiObjects
from tests.integration.watched_source import OTHER, InterceptedClient, RunningWatch, WatchedSource, watched_source
from tests.kube import Crd, KubeRefused
from tests.redis_servers import TestServer

CAPAS = "awscluster.infrastructure.cluster.x-k8s.io"
"""CAPA's own finalizer."""


class WatchedCapiClusters(WatchedSource):
    """With Cluster API and its AWS provider installed, and the feature on."""

    capi: CapiObjects

    async def start_aws(self, crd: Crd = AWS_CLUSTERS, **how: Any) -> RunningWatch:
        given = {
            "name": "aws",
            "resource": crd.resource,
            "collector": CAPA,
            "recognise": source_named(CAPA).recognise,
            **how,
        }
        return await self.start(**given)

    def switch(self, *, on: bool) -> None:
        features = FeatureSettings(frozenset({FEATURE} if on else ()))
        self.settings = msgspec.structs.replace(self.settings, features=features)

    def owned(self, name: str, **labels: str) -> None:
        """An AWSCluster of a Cluster of the same name, with these labels besides."""
        ties = self.capi.owned_by(self.capi.cluster(name))
        self.capi.create(AWS_CLUSTERS, name, {}, **{**ties, "labels": {CLUSTER_NAME: name, **labels}})

    def aws(self, name: str, crd: Crd = AWS_CLUSTERS) -> list[str]:
        return self.capi.finalizers(crd, name)

    async def until_marked(self, name: str, crd: Crd = AWS_CLUSTERS) -> None:
        await self.until(f"{name} is marked", lambda: AWS_FINALIZER in self.aws(name, crd))

    async def is_left_alone(self, running: RunningWatch, name: str, finalizers: Sequence[str] = ()) -> None:
        """The source has seen everything that was done to that object so far, for a later one, which nothing stands
        against, is marked; and deferred patches were queued again meanwhile."""
        witness = f"witness-of-{name}"
        self.owned(witness)
        await self.until_marked(witness)
        await self.stays(f"{name} is left alone", lambda: self.aws(name) == list(finalizers))
        assert running.source.problem == ""


@pytest.fixture
async def clusters(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[WatchedCapiClusters]:
    namespace = api.namespace()
    made = CapiObjects(api.kube, namespace)
    redis = embedded_server.settings()
    async with watched_source(
        api.server, api.kube, redis, tmp_path, AWS_CLUSTERS, namespace, WatchedCapiClusters
    ) as found:
        assert isinstance(found, WatchedCapiClusters)
        found.capi = made
        found.switch(on=True)
        yield found
    for crd in (AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES):
        for item in api.kube.get(crd.path(namespace))["items"]:  # type: ignore[index]
            with contextlib.suppress(KubeRefused):
                api.kube.patch(crd.path(namespace, item["metadata"]["name"]), {"metadata": {"finalizers": []}})


# ---- marking


async def test_both_kinds_of_cluster_get_the_finalizer_of_aws_and_are_published(clusters: WatchedCapiClusters) -> None:
    await clusters.start_aws()
    await clusters.start_aws(AWS_MANAGED_CONTROL_PLANES, name="eks")
    clusters.capi.unmanaged("one", finalizers=[CAPAS])
    clusters.capi.managed("two")
    await clusters.until_marked("one")
    await clusters.until_marked("two-control-plane", AWS_MANAGED_CONTROL_PLANES)
    assert clusters.aws("one") == [CAPAS, AWS_FINALIZER]
    assert clusters.aws("two-control-plane", AWS_MANAGED_CONTROL_PLANES) == [AWS_FINALIZER]
    clusters.capi.delete(AWS_CLUSTERS, "one")
    clusters.capi.delete(AWS_MANAGED_CONTROL_PLANES, "two-control-plane")
    found = await clusters.until_published("one", "two-control-plane")
    assert [found[name].source for name in ("one", "two-control-plane")] == ["aws", "eks"]


async def test_an_object_that_belongs_to_no_cluster_is_marked_when_it_belongs_to_one(
    clusters: WatchedCapiClusters,
) -> None:
    running = await clusters.start_aws()
    clusters.capi.create(AWS_CLUSTERS, "alone", {"region": "us-east-1"})
    await clusters.is_left_alone(running, "alone")
    ties = clusters.capi.owned_by(clusters.capi.cluster("family"))
    clusters.capi.patch(AWS_CLUSTERS, "alone", {"metadata": ties})
    await clusters.until_marked("alone")


@pytest.mark.parametrize("old", [{EXTERNAL_RESOURCE_GC: "true"}, {GC: "enabled"}])
async def test_objects_older_than_the_source_get_the_finalizer_only_when_adopted(
    clusters: WatchedCapiClusters, old: dict[str, str]
) -> None:
    clusters.capi.unmanaged("old")
    clusters.capi.unmanaged("told", annotations=old)
    running = await clusters.start_aws(enabled_at=4_000_000_000_000)
    await clusters.until_marked("told")
    await clusters.until_listed_again(running)
    assert clusters.aws("old") == []
    await running.stop()
    await clusters.start_aws(enabled_at=4_000_000_000_000, adopt_existing=True)
    await clusters.until_marked("old")


async def test_an_opt_out_before_and_after_creation_keeps_the_finalizer_off(clusters: WatchedCapiClusters) -> None:
    running = await clusters.start_aws()
    clusters.capi.unmanaged("never", annotations={EXTERNAL_RESOURCE_GC: "false"})
    clusters.capi.unmanaged("once")
    clusters.capi.unmanaged("unclear", annotations={EXTERNAL_RESOURCE_GC: "no"})
    await clusters.until_marked("once")
    clusters.capi.annotate(AWS_CLUSTERS, "once", **{EXTERNAL_RESOURCE_GC: "False"})
    await clusters.until("it is released", lambda: clusters.aws("once") == [])
    await clusters.is_left_alone(running, "once")
    assert (clusters.aws("never"), clusters.aws("unclear")) == ([], [])
    clusters.capi.annotate(AWS_CLUSTERS, "once", **{EXTERNAL_RESOURCE_GC: None})
    await clusters.until_marked("once")


# ---- paused


@pytest.mark.parametrize("how", ["spec", "annotation", "object"])
async def test_a_paused_cluster_is_marked_when_it_is_paused_no_more(clusters: WatchedCapiClusters, how: str) -> None:
    running = await clusters.start_aws()
    mark = {CLUSTER_PAUSED: "true"}
    clusters.capi.unmanaged("one", paused=how == "spec", annotations=mark if how == "object" else {})
    if how == "annotation":
        # Paused before anybody could mark it: the object comes after its Cluster.
        cluster = clusters.capi.cluster("two", annotations=mark)
        clusters.capi.create(AWS_CLUSTERS, "two", {}, **clusters.capi.owned_by(cluster))
    name = "two" if how == "annotation" else "one"
    await clusters.is_left_alone(running, name)
    match how:
        case "spec":
            clusters.capi.pause("one", paused=False)
        case "annotation":
            clusters.capi.annotate(CLUSTERS, "two", **{CLUSTER_PAUSED: None})
        case _:
            clusters.capi.annotate(AWS_CLUSTERS, "one", **{CLUSTER_PAUSED: None})
    await clusters.until_marked(name)
    assert running.source.problem == ""


async def test_an_object_whose_cluster_is_missing_is_marked_when_that_comes(clusters: WatchedCapiClusters) -> None:
    running = await clusters.start_aws()
    clusters.capi.create(AWS_CLUSTERS, "early", {}, labels={CLUSTER_NAME: "later"})
    await clusters.is_left_alone(running, "early")
    clusters.capi.cluster("later")
    await clusters.until_marked("early")


async def test_a_marked_object_keeps_its_finalizer_while_it_is_paused(clusters: WatchedCapiClusters) -> None:
    running = await clusters.start_aws()
    clusters.capi.unmanaged("one")
    await clusters.until_marked("one")
    clusters.capi.pause("one")
    clusters.capi.annotate(AWS_CLUSTERS, "one", **{CLUSTER_PAUSED: "true"})
    await clusters.is_left_alone(running, "one", [AWS_FINALIZER])


# ---- clusterctl move


class Clusterctl:
    """As `clusterctl move` goes through one Cluster, step by step. Releases before 1.9 do not mark what they delete."""

    def __init__(self, clusters: WatchedCapiClusters, name: str, *, marks: bool) -> None:
        self._capi, self._name, self._marks = clusters.capi, name, marks

    def pause(self) -> None:
        self._capi.pause(self._name)

    def strip(self) -> None:
        """Of the infrastructure object: the Cluster goes last."""
        if self._marks:
            self._capi.annotate(AWS_CLUSTERS, self._name, **{DELETE_FOR_MOVE: ""})
        self._capi.patch(AWS_CLUSTERS, self._name, {"metadata": {"finalizers": []}})

    def delete(self) -> None:
        self._capi.delete(AWS_CLUSTERS, self._name)
        self._capi.delete(CLUSTERS, self._name)


@pytest.mark.parametrize("marks", [True, False])
async def test_a_move_takes_the_object_away_and_nothing_is_collected(
    clusters: WatchedCapiClusters, api: TestApi, marks: bool
) -> None:
    running = await clusters.start_aws()
    clusters.capi.unmanaged("one", finalizers=[CAPAS])
    await clusters.until_marked("one")
    before = clusters.capi.get(AWS_CLUSTERS, "one")
    move = Clusterctl(clusters, "one", marks=marks)
    move.pause()
    # The copy lives on in another management cluster, which is not watched here.
    elsewhere = CapiObjects(api.kube, api.namespace())
    elsewhere.unmanaged("one", paused=True)
    move.strip()
    # Between the two steps it is a live object without our finalizer, which is what is marked else.
    await clusters.is_left_alone(running, "one")
    marked = running.source.counters.marked
    move.delete()
    await clusters.until("it is gone", lambda: clusters.capi.get(AWS_CLUSTERS, "one") is None)
    await clusters.until_listed_again(running)
    assert before["metadata"]["finalizers"] == [CAPAS, AWS_FINALIZER]
    assert await clusters.deletions() == {}
    counters = running.source.counters
    assert (counters.marked, counters.published, counters.missed) == (marked, 0, 0)
    assert elsewhere.get(AWS_CLUSTERS, "one") is not None


@pytest.mark.parametrize("marks", [True, False])
async def test_a_finalizer_that_a_move_stripped_is_not_put_back_by_an_older_decision(
    clusters: WatchedCapiClusters, marks: bool
) -> None:
    """The Cluster is paused and the finalizers go between our look at the Cluster and our patch."""
    move = Clusterctl(clusters, "one", marks=marks)
    patches: list[str] = []

    def meddle(method: str, name: str) -> None:
        if (method, name) == ("PATCH", "one"):
            if not patches:
                move.pause()
                move.strip()
            patches.append(name)

    running = await clusters.start_aws(cluster=InterceptedClient(clusters.cluster, AWS_CLUSTERS, meddle))
    clusters.capi.unmanaged("one", finalizers=[CAPAS])
    await clusters.until("it was to be marked", lambda: patches)
    await clusters.is_left_alone(running, "one")
    assert patches == ["one"]
    move.delete()
    await clusters.until("it is gone", lambda: clusters.capi.get(AWS_CLUSTERS, "one") is None)
    await clusters.until_listed_again(running)
    assert await clusters.deletions() == {}


# ---- the feature


async def test_without_the_feature_no_finalizer_is_added_or_removed_and_deletions_are_published(
    clusters: WatchedCapiClusters,
) -> None:
    clusters.switch(on=False)
    running = await clusters.start_aws()
    clusters.capi.unmanaged("one", annotations={EXTERNAL_RESOURCE_GC: "true"})
    clusters.capi.unmanaged("opted-out", annotations={EXTERNAL_RESOURCE_GC: "false"}, finalizers=[AWS_FINALIZER])
    clusters.capi.unmanaged("going", finalizers=[AWS_FINALIZER])
    clusters.capi.delete(AWS_CLUSTERS, "going")
    # Whoever plans it holds it; who watches sees to it that it is known.
    await clusters.until_published("going")
    await clusters.until_listed_again(running)
    assert clusters.aws("one") == []
    assert clusters.aws("opted-out") == clusters.aws("going") == [AWS_FINALIZER]
    assert running.source.counters.marked == running.source.counters.missed == 0
    await running.stop()
    clusters.switch(on=True)
    await clusters.start_aws()
    await clusters.until_marked("one")
    await clusters.until("it is released", lambda: clusters.aws("opted-out") == [])


# ---- beside others


async def test_sources_of_one_resource_with_different_finalizers_leave_each_other_alone(
    clusters: WatchedCapiClusters,
) -> None:
    plain = SourceSettings(
        resource=AWS_CLUSTERS.resource, collector="none", namespaces=(clusters.namespace,), selector="team=a"
    )
    aws = msgspec.structs.replace(plain, collector=CAPA, selector="team!=a")
    first = await clusters.start_aws(selector="team!=a", others={"plain": plain})
    second = await clusters.start(name="plain", selector="team=a", others={"aws": aws})
    clusters.owned("ours", team="a")
    clusters.owned("theirs")
    await clusters.until("both are marked", lambda: clusters.aws("ours") and clusters.aws("theirs"))
    assert (clusters.aws("ours"), clusters.aws("theirs")) == ([FINALIZER], [AWS_FINALIZER])
    clusters.capi.delete(AWS_CLUSTERS, "ours")
    clusters.capi.delete(AWS_CLUSTERS, "theirs")
    found = await clusters.until_published("ours", "theirs")
    for running in (first, second):
        await clusters.until_listed_again(running)
    # Neither takes the other's finalizer for a consent that was withdrawn.
    found = await clusters.deletions()
    assert {name: (view.source, view.state) for name, view in found.items()} == {
        "ours": ("plain", "published"), "theirs": ("aws", "published"),
    }  # fmt: skip
    assert first.source.counters.withdrawn == second.source.counters.withdrawn == 0


async def test_an_object_that_changes_sources_changes_its_finalizer(clusters: WatchedCapiClusters) -> None:
    plain = SourceSettings(
        resource=AWS_CLUSTERS.resource, collector="none", namespaces=(clusters.namespace,), opt_in="team=a"
    )
    aws = msgspec.structs.replace(plain, collector=CAPA, opt_in="team=b")
    await clusters.start_aws(opt_in="team=b", others={"plain": plain})
    await clusters.start(name="plain", opt_in="team=a", others={"aws": aws})
    clusters.owned("one", team="b")
    await clusters.until_marked("one")
    clusters.capi.patch(AWS_CLUSTERS, "one", {"metadata": {"labels": {"team": "a"}}})
    await clusters.until("it is plain's alone", lambda: clusters.aws("one") == [FINALIZER])
    clusters.capi.patch(AWS_CLUSTERS, "one", {"metadata": {"labels": {"team": "b"}}})
    await clusters.until("it is aws's alone", lambda: clusters.aws("one") == [AWS_FINALIZER])


async def test_an_object_of_two_collectors_goes_in_the_name_of_one_after_the_other(
    clusters: WatchedCapiClusters,
) -> None:
    plain = SourceSettings(resource=AWS_CLUSTERS.resource, collector="none", namespaces=(clusters.namespace,))
    aws = msgspec.structs.replace(plain, collector=CAPA)
    running = await clusters.start_aws(others={"plain": plain})
    clusters.owned("one")
    await clusters.until_marked("one")
    second = await clusters.start(name="plain", others={"aws": aws})
    await clusters.until("it has both", lambda: clusters.aws("one") == [AWS_FINALIZER, FINALIZER])
    clusters.capi.delete(AWS_CLUSTERS, "one")
    (view,) = (await clusters.until_published("one")).values()
    names = {"aws": (running, AWS_FINALIZER), "plain": (second, FINALIZER)}
    (other,) = set(names) - {view.source}
    # As workers would end the first: its finalizer comes off, then it is done.
    clusters.capi.patch(AWS_CLUSTERS, "one", {"metadata": {"finalizers": [names[other][1]]}})
    await clusters.end(view.id)
    await clusters.until_listed_again(names[other][0])
    found = await clusters.until_published("one", "one 2")
    assert found["one 2"].source == other
    assert running.source.counters.withdrawn == second.source.counters.withdrawn == 0


async def test_a_source_that_got_another_collector_withdraws_nothing(clusters: WatchedCapiClusters) -> None:
    """It is a changed setting, no changed mind: the object waits until an operator decides."""
    running = await clusters.start_aws()
    clusters.capi.unmanaged("one", finalizers=[OTHER])
    await clusters.until_marked("one")
    clusters.capi.delete(AWS_CLUSTERS, "one")
    await clusters.until_published("one")
    await running.stop()
    changed = await clusters.start_aws(collector="none", recognise=source_named("none").recognise)
    await clusters.until_listed_again(changed)
    (view,) = (await clusters.deletions()).values()
    assert (view.state, changed.source.counters.withdrawn) == ("published", 0)
    assert clusters.aws("one") == [OTHER, AWS_FINALIZER]
