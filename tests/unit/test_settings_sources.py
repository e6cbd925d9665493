"""Settings of clusters and sources: defaults, and messages for mistakes."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from service.settings import GuardSettings, Settings, SettingsError, load

Read = Callable[[str], Settings]
TWO_CLUSTERS = "clusters:\n  a: {kubeconfig: /x}\n  b: {kubeconfig: /y}\n"
ONE_CLUSTER = "clusters:\n  main: {kubeconfig: /etc/kube/config}\n"


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str) -> Settings:
        file = tmp_path / "knell.yaml"
        file.write_text(text)
        return load(file, {})

    return read


def problems(read: Read, text: str) -> str:
    with pytest.raises(SettingsError) as raised:
        read(text)
    return str(raised.value)


def test_a_source_needs_only_its_resource_and_collector(read: Read) -> None:
    source = read(ONE_CLUSTER + "sources:\n  widgets: {resource: ws.x.org, collector: none}\n").sources["widgets"]
    assert (source.mode, source.namespaces, source.shares, source.adopt_existing) == ("finalizer", (), 1, False)
    assert source.guard == GuardSettings()


def test_lists_and_nested_settings_of_a_source_are_read(read: Read) -> None:
    source = read(
        ONE_CLUSTER
        + "sources:\n  widgets:\n    resource: ws.x.org\n    collector: none\n    mode: observe\n"
        + "    namespaces: [team-a, team-b]\n    guard: {most: 3, window: 10m}\n"
    ).sources["widgets"]
    assert (source.mode, source.namespaces) == ("observe", ("team-a", "team-b"))
    assert (source.guard.most, source.guard.window) == (3, timedelta(minutes=10))


def test_a_source_without_a_collector_is_reported_by_its_path(read: Read) -> None:
    assert "sources.widgets.collector" in problems(read, ONE_CLUSTER + "sources:\n  widgets: {resource: ws.x.org}\n")


@pytest.mark.parametrize(
    ("cluster", "word"),
    [
        ("{in_cluster: true, kubeconfig: /x}", "different ways"),
        ("{in_cluster: true, context: a}", "context names a part of a kubeconfig"),
        ("{secret: a/b/c}", "belong together"),
        ("{secret: a/b/c, via: nowhere}", "not among clusters"),
        ("{secret: a/b/c, via: main}", "reached without a Secret"),
        ("{secret: abc, via: main}", "namespace/name/key"),
    ],
)
def test_a_way_to_a_cluster_that_cannot_be_meant_is_explained(read: Read, cluster: str, word: str) -> None:
    assert word in problems(read, f"clusters:\n  main: {cluster}\n")


@pytest.mark.parametrize(
    ("source", "path", "word"),
    [
        ("{resource: Widgets, collector: none}", "sources.w.resource", "plural.group"),
        ("{resource: ws.x.org, collector: none, cluster: other}", "sources.w.cluster", "main"),
        ("{resource: ws.x.org, collector: none, mode: guess}", "sources.w.mode", "finalizer, observe"),
        ("{resource: ws.x.org, collector: none, namespaces: a}", "sources.w.namespaces", "a list of texts"),
        ("{resource: ws.x.org, collector: none, namespaces: [a], shares: 2}", "sources.w.shares", "divided"),
        (
            "{resource: ws.x.org, collector: none, deletion_policy: keep}",
            "sources.w.deletion_policy",
            "retain",
        ),
    ],
)
def test_a_mistake_in_a_source_names_path_and_allowed_values(read: Read, source: str, path: str, word: str) -> None:
    said = problems(read, ONE_CLUSTER + f"sources:\n  w: {source}\n")
    assert path in said
    assert word in said


def test_a_source_must_name_its_cluster_where_there_are_several(read: Read) -> None:
    said = problems(read, TWO_CLUSTERS + "sources:\n  w: {resource: ws.x.org, collector: none}\n")
    assert "sources.w.cluster" in said
    assert "a, b" in said


def test_names_that_could_not_be_lease_names_are_refused(read: Read) -> None:
    assert "small letters" in problems(
        read, ONE_CLUSTER + "sources:\n  My_Source: {resource: ws.x.org, collector: none}\n"
    )


def test_a_name_that_stands_for_what_a_sweep_finds_is_refused(read: Read) -> None:
    said = problems(read, ONE_CLUSTER + "sources:\n  w.orphans: {resource: ws.x.org, collector: none}\n")
    assert "sources.w.orphans: .orphans at the end of a name stands for what a sweep of another source finds" in said


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("", ""),
        ("namespaces: [a, b]", "namespaces: [b, c]"),
        ("namespaces: [a]", ""),
        ("selector: team=a", "selector: ' team=a '"),
        ("opt_in: team", "opt_in: team, mode: observe"),
        ("opt_out: team=a", ""),
        ("", "cluster: main"),
    ],
)
def test_two_sources_of_the_same_objects_are_refused_by_name(read: Read, first: str, second: str) -> None:
    said = problems(read, ONE_CLUSTER + _two_sources(first, second))
    assert "sources.second" in said
    assert "sources first and second watch the same objects (ws.x.org)" in said


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("namespaces: [a]", "namespaces: [b]"),
        ("selector: team=a", "selector: team=b"),
        ("opt_in: team=a", "opt_out: team=a"),
        ("opt_out: team", "opt_out: '!team'"),
    ],
)
def test_sources_that_may_have_nothing_in_common_are_accepted(read: Read, first: str, second: str) -> None:
    assert len(read(ONE_CLUSTER + _two_sources(first, second)).sources) == 2


def test_sources_of_one_resource_in_two_clusters_are_accepted(read: Read) -> None:
    assert len(read(TWO_CLUSTERS + _two_sources("cluster: a", "cluster: b")).sources) == 2


def _two_sources(first: str, second: str) -> str:
    def source(name: str, more: str) -> str:
        return f"  {name}: {{resource: ws.x.org, collector: none{', ' if more else ''}{more}}}\n"

    return "sources:\n" + source("first", first) + source("second", second)
