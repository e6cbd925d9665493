"""`knell gc` for clusters on AWS: by the name of the Cluster or its infrastructure, with Cluster API's annotations."""

import dataclasses
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from service.cli.gc import MetadataChange, configure_tasks, enable_object, patch_metadata
from service.cli.object_lookup import resolve_object
from service.cli.session import InvalidUsage
from service.contract.names import FINALIZER, GC
from service.kubernetes import KubeObject
from service.policy.capi import CLUSTER_PAUSED
from service.settings import load
from service.sources.capa import (
    AWS_ACCOUNT,
    AWS_FINALIZER,
    DEFAULT_TASKS,
    EXTERNAL_RESOURCE_GC,
    EXTERNAL_RESOURCE_TASKS,
    TASKS,
)
from service.sources.declaration import AccountAnnotation, Sections, Source, TaskChoice
from service.sources.registry import register
from tests.api_servers import TestApi
from tests.capi import AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, CLUSTERS, CapiObjects, clear, reference
from tests.integration.command_line import CommandResult, environment
from tests.integration.watched_source import InterceptedClient
from tests.integration.widget_source import WidgetSource, widget_source
from tests.kube import Crd, KubeRefused
from tests.redis_servers import TestServer

PLANE = "two-control-plane"


class GcOperator:
    def __init__(self, widgets: WidgetSource) -> None:
        self.widgets, self.capi = widgets, CapiObjects(widgets.api.kube, widgets.namespace)
        self.allowed: tuple[str, ...] = TASKS

    def settings(self, *, on: bool = True, **changes: Any) -> Path:
        sources = {
            "aws": {"resource": AWS_CLUSTERS.resource, "collector": "capa", **changes},
            "eks": {"resource": AWS_MANAGED_CONTROL_PLANES.resource, "collector": "capa", **changes},
        }
        path = self.widgets.config(sources=sources)
        allowed = f"aws: {{allowed_tasks: [{', '.join(self.allowed)}]}}\n"
        path.write_text(f"{path.read_text()}features: {{ExternalResourceGC: {str(on).lower()}}}\n{allowed}")
        return path

    def gc(self, *words: str, config: Path | None = None) -> CommandResult:
        return self.widgets.knell(config or self.settings(), "gc", *words, "-n", self.widgets.namespace)

    def meta(self, name: str, crd: Crd = AWS_CLUSTERS) -> Any:
        return self.capi.get(crd, name)["metadata"]


@pytest.fixture
def operator(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> Iterator[GcOperator]:
    made = GcOperator(widget_source(api, embedded_server, tmp_path, AWS_CLUSTERS))
    yield made
    for crd in (AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES):
        for item in api.kube.get(crd.path(made.widgets.namespace))["items"]:  # type: ignore[index]
            with suppress(KubeRefused):
                made.capi.patch(crd, item["metadata"]["name"], {"metadata": {"finalizers": []}})


@pytest.mark.parametrize("old", [False, True], ids=["by group", "by version"])
@pytest.mark.parametrize(
    "what", ["cluster/one", "Cluster/one", "clusters.cluster.x-k8s.io/one", "awscluster/one-infra"]
)
def test_enable_follows_a_cluster_to_its_infrastructure(operator: GcOperator, what: str, old: bool) -> None:
    operator.capi.unmanaged("one", infra="one-infra", old=old, finalizers=["a.b/c"], annotations={GC: "disabled"})
    answer = operator.gc("enable", what, "--account", "123456789012")
    assert answer.code == 0, answer.err
    assert "awsclusters.infrastructure.cluster.x-k8s.io/one-infra" in answer.out
    assert "has the finalizer" in answer.out
    meta = operator.meta("one-infra")
    assert meta["finalizers"] == ["a.b/c", AWS_FINALIZER]
    # Our own annotation, which would contradict it now, was removed.
    assert meta["annotations"] == {EXTERNAL_RESOURCE_GC: "true", AWS_ACCOUNT: "123456789012"}


@pytest.mark.parametrize("what", ["cluster/two", f"awsmanagedcontrolplane/{PLANE}"])
def test_a_cluster_on_eks_is_followed_to_its_control_plane(operator: GcOperator, what: str) -> None:
    operator.capi.managed("two")
    answer = operator.gc("enable", what, "--output", "json")
    assert answer.code == 0, answer.err
    assert (answer.json["name"], answer.json["gc"], answer.json["finalizer"]) == (PLANE, "enabled", True)
    assert operator.meta(PLANE, AWS_MANAGED_CONTROL_PLANES)["finalizers"] == [AWS_FINALIZER]
    off = operator.gc("disable", what, "--output", "json")
    assert (off.json["gc"], off.json["finalizer"]) == ("disabled", False)
    meta = operator.meta(PLANE, AWS_MANAGED_CONTROL_PLANES)
    assert meta["annotations"] == {EXTERNAL_RESOURCE_GC: "false"}
    assert "finalizers" not in meta


def test_disable_takes_only_the_finalizer_of_its_source_off(operator: GcOperator) -> None:
    operator.capi.unmanaged("one", finalizers=[FINALIZER, AWS_FINALIZER])
    assert operator.gc("disable", "cluster/one").code == 0
    assert operator.meta("one")["finalizers"] == [FINALIZER]


def test_disable_leaves_one_that_is_going_to_the_workers(operator: GcOperator) -> None:
    operator.capi.unmanaged("one", finalizers=[AWS_FINALIZER])
    operator.capi.delete(AWS_CLUSTERS, "one")
    answer = operator.gc("disable", "cluster/one")
    assert (answer.code, "already going" in answer.out) == (0, True)
    meta = operator.meta("one")
    assert (meta["finalizers"], meta["annotations"]) == ([AWS_FINALIZER], {EXTERNAL_RESOURCE_GC: "false"})


def test_configure_says_what_becomes_of_one_that_is_already_going(operator: GcOperator) -> None:
    operator.capi.unmanaged("one", finalizers=[AWS_FINALIZER])
    living = operator.gc("configure", "cluster/one", "--task", "security-group")
    assert (living.code, "already going" in living.out) == (0, False)
    operator.capi.delete(AWS_CLUSTERS, "one")
    answer = operator.gc("configure", "cluster/one", "--task", "load-balancer")
    assert answer.code == 0, answer.err
    assert "already going: what is left of other tasks stays where it is" in answer.out
    assert "is removed by the last look" in answer.out
    assert operator.meta("one")["annotations"] == {EXTERNAL_RESOURCE_TASKS: "load-balancer"}


@pytest.mark.parametrize("how", ["the feature is off", "the Cluster is paused", "the object is paused", "no Cluster"])
def test_enable_adds_no_finalizer_where_none_may_be(operator: GcOperator, how: str) -> None:
    """The annotation is set nevertheless: the watcher adds the finalizer as soon as it may."""
    operator.capi.unmanaged(
        "one", paused=how == "the Cluster is paused", annotations={CLUSTER_PAUSED: ""} if "object" in how else {}
    )
    if how == "no Cluster":
        operator.capi.patch(AWS_CLUSTERS, "one", {"metadata": {"ownerReferences": []}})
        operator.capi.kube.patch(
            AWS_CLUSTERS.path(operator.widgets.namespace, "one"),
            {"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "nobody"}}},
        )
    config = operator.settings(on=how != "the feature is off")
    answer = operator.gc("enable", "awscluster/one", config=config)
    assert answer.code == 0, answer.err
    words = {"the feature is off": "ExternalResourceGC is off", "no Cluster": "there is none"}.get(how, "paused")
    assert "without a finalizer" in answer.out
    assert words in answer.out
    assert operator.meta("one").get("finalizers", []) == []
    assert operator.meta("one")["annotations"][EXTERNAL_RESOURCE_GC] == "true"


async def test_a_finalizer_that_was_stripped_meanwhile_is_not_put_back_by_an_older_decision(
    operator: GcOperator,
) -> None:
    operator.capi.unmanaged("one", finalizers=["a.b/c"])
    settings = load(operator.settings(), environment(operator.widgets.redis))
    asked: list[tuple[str, ...]] = []

    def strip(method: str, name: str) -> None:
        if method == "PATCH" and len(asked) == 1:
            operator.capi.pause("one")
            operator.capi.patch(AWS_CLUSTERS, name, {"metadata": {"finalizers": []}})

    async def decide(live: KubeObject) -> MetadataChange:
        asked.append(live.finalizers)
        return MetadataChange({EXTERNAL_RESOURCE_GC: "true"}, finalizer=True if live.finalizers else None)

    async with resolve_object(settings, "cluster/one", operator.widgets.namespace, None) as one:
        meddled = dataclasses.replace(one, cluster=InterceptedClient(one.cluster, AWS_CLUSTERS, strip))
        live = await patch_metadata(meddled, decide)
    assert asked == [("a.b/c",), ()]
    assert live.finalizers == ()
    assert operator.meta("one")["annotations"] == {EXTERNAL_RESOURCE_GC: "true"}


def test_configure_chooses_tasks_and_gives_the_choice_back(operator: GcOperator) -> None:
    operator.capi.unmanaged("one")
    words = ("--task", "volume, load-balancer", "--task", "volume", "--task", "nat-gateway")
    answer = operator.gc("configure", "cluster/one", *words, "--output", "json")
    assert answer.code == 0, answer.err
    assert answer.json["tasks"] == ["volume", "load-balancer", "nat-gateway"]
    assert operator.meta("one")["annotations"] == {EXTERNAL_RESOURCE_TASKS: "volume,load-balancer,nat-gateway"}
    assert operator.meta("one").get("finalizers", []) == []
    back = operator.gc("configure", "awscluster/one")
    assert (back.code, "load-balancer, target-group, security-group" in back.out) == (0, True)
    assert EXTERNAL_RESOURCE_TASKS not in operator.meta("one").get("annotations", {})


def test_invalid_options_are_refused_with_the_allowed_values(operator: GcOperator) -> None:
    operator.capi.unmanaged("one")
    unknown = operator.gc("configure", "cluster/one", "--task", "volume,everything")
    assert unknown.code == 2
    assert f"unknown everything; allowed: {', '.join(TASKS)}" in unknown.err
    operator.allowed = DEFAULT_TASKS
    beyond = operator.gc("configure", "cluster/one", "--task", "volume,load-balancer")
    assert beyond.code == 2
    assert f"aws.allowed_tasks does not allow volume; allowed: {', '.join(DEFAULT_TASKS)}" in beyond.err
    account = operator.gc("enable", "cluster/one", "--account", "1234")
    assert (account.code, "12 digits" in account.err) == (2, True)
    assert "annotations" not in operator.meta("one")


def test_a_cluster_without_infrastructure_is_refused_with_one_sentence(operator: GcOperator) -> None:
    missing = operator.gc("enable", "cluster/nobody")
    assert (missing.code, "there is no Cluster nobody" in missing.err) == (1, True)
    operator.capi.cluster("bare")
    bare = operator.gc("enable", "cluster/bare")
    assert (bare.code, "names nothing yet" in bare.err) == (1, True)
    azure = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AzureCluster", "name": "z"}
    operator.capi.cluster("azure", infrastructureRef=azure)
    other = operator.gc("enable", "cluster/azure")
    assert (other.code, "AzureCluster z" in other.err) == (1, True)
    operator.capi.cluster("early", infrastructureRef=reference(AWS_CLUSTERS, "early"))
    early = operator.gc("enable", "cluster/early")
    assert (early.code, "there is no AWSCluster early" in early.err) == (1, True)


def test_what_only_clusters_on_aws_have_is_refused_for_others(operator: GcOperator) -> None:
    operator.capi.unmanaged("one")
    config = operator.widgets.config(sources={"plain": {"resource": AWS_CLUSTERS.resource, "collector": "none"}})
    tasks = operator.gc("configure", "awscluster/one", "--task", "load-balancer", config=config)
    assert (tasks.code, "objects of source plain have no tasks" in tasks.err) == (2, True)
    account = operator.gc("enable", "awscluster/one", "--account", "123456789012", config=config)
    assert (account.code, "no annotation names the account of an object of source plain" in account.err) == (2, True)
    followed = operator.gc("enable", "cluster/one", config=config)
    assert (followed.code, "no source watches 'cluster'" in followed.err) == (2, True)


def test_a_source_that_is_about_clusters_of_its_own_comes_first(operator: GcOperator) -> None:
    operator.capi.unmanaged("one")
    sources = {
        "aws": {"resource": AWS_CLUSTERS.resource, "collector": "capa"},
        "clusters": {"resource": "clusters.cluster.x-k8s.io", "collector": "none"},
    }
    config = operator.widgets.config(sources=sources)
    answer = operator.gc("enable", "cluster/one", "--output", "json", config=config)
    assert answer.code == 0, answer.err
    assert (answer.json["source"], answer.json["resource"]) == ("clusters", "clusters.cluster.x-k8s.io")
    assert "annotations" not in operator.meta("one")
    operator.capi.patch(CLUSTERS, "one", {"metadata": {"finalizers": []}})


async def test_tasks_and_account_of_a_source_are_written_by_the_names_of_its_declaration(operator: GcOperator) -> None:
    """Also of a source that is declared by another program."""
    operator.capi.unmanaged("one")
    choice = TaskChoice("toys.example/tasks", ("wash", "dry", "burn"), "toys.allowed", _all_but_burn, _all_but_burn)
    account = AccountAnnotation("toys.example/account", "[a-z]{3}", "three letters")
    with register(Source(name="toys", tasks=choice, account=account)):
        sources = {"toys": {"resource": AWS_CLUSTERS.resource, "collector": "toys"}}
        settings = load(operator.widgets.config(sources=sources), environment(operator.widgets.redis))
        where = ("awscluster/one", operator.widgets.namespace, None)
        for words, refusal in ((["iron"], "unknown iron; allowed: wash, dry"), (["burn"], "toys.allowed does not")):
            with pytest.raises(InvalidUsage, match=refusal):
                await configure_tasks(settings, *where, words)
        told = await configure_tasks(settings, *where, ["dry"])
        assert (told["tasks"], operator.meta("one")["annotations"]) == (["dry"], {"toys.example/tasks": "dry"})
        assert (await configure_tasks(settings, *where, []))["tasks"] == ["wash", "dry"]
        with pytest.raises(InvalidUsage, match="write its three letters"):
            await enable_object(settings, *where, "123456789012")
        await enable_object(settings, *where, "abc")
    assert operator.meta("one")["annotations"] == {"toys.example/account": "abc", GC: "enabled"}
    operator.capi.patch(AWS_CLUSTERS, "one", {"metadata": {"finalizers": []}})


def _all_but_burn(_settings: Sections) -> tuple[str, ...]:
    return ("wash", "dry")


def test_uninstall_takes_both_finalizers_off(operator: GcOperator, api: TestApi) -> None:
    # The command reads all Namespaces of the server.
    clear(api.kube)
    operator.capi.unmanaged("one", finalizers=["a.b/c", FINALIZER, AWS_FINALIZER])
    operator.capi.unmanaged("two", finalizers=[AWS_FINALIZER])
    answer = operator.widgets.knell(operator.settings(), "uninstall", "--yes")
    assert answer.code == 0, answer.err
    assert operator.meta("one")["finalizers"] == ["a.b/c"]
    assert "finalizers" not in operator.meta("two")


def test_a_source_whose_feature_is_off_says_so(operator: GcOperator) -> None:
    off = operator.settings(on=False)
    listed = operator.widgets.knell(off, "sources", "list")
    assert "switched off" in listed.out
    assert "The feature ExternalResourceGC is off: source aws marks nothing" in " ".join(listed.out.split())
    found = operator.widgets.knell(off, "sources", "list", "--output", "json").json["sources"]
    assert {one["name"]: one["feature_off"] for one in found} == dict.fromkeys(("aws", "eks"), "ExternalResourceGC")
    status = operator.widgets.knell(off, "status")
    assert "ExternalResourceGC is off" in " ".join(status.out.split())
    on = operator.widgets.knell(operator.settings(), "sources", "list")
    assert "ExternalResourceGC" not in on.out
