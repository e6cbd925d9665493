"""`knell gc`: which annotations and finalizers it changes, what it leaves alone, and its errors."""

from pathlib import Path
from typing import Any

import pytest

from service.contract.names import FINALIZER, GC
from tests.api_servers import TestApi
from tests.integration.widget_source import WidgetSource, widget_source
from tests.redis_servers import TestServer

OTHER = "example.com/other"


@pytest.fixture
def widgets(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> WidgetSource:
    return widget_source(api, embedded_server, tmp_path)


def test_enable_marks_an_object_and_keeps_what_others_put_there(widgets: WidgetSource) -> None:
    widgets.create("old", finalizers=[OTHER], annotations={"note": "mine"})
    answer = widgets.knell(widgets.config(), "gc", "enable", f"{widgets.crd.resource}/old", "-n", widgets.namespace)
    assert answer.code == 0, answer.err
    assert "has the finalizer" in answer.out
    meta = widgets.get("old")["metadata"]
    assert sorted(meta["finalizers"]) == [OTHER, FINALIZER]
    assert meta["annotations"] == {"note": "mine", GC: "enabled"}
    again = widgets.knell(widgets.config(), "gc", "enable", f"{widgets.crd.resource}/old", "-n", widgets.namespace)
    assert again.code == 0
    assert widgets.get("old")["metadata"]["finalizers"].count(FINALIZER) == 1


def test_disable_takes_only_our_finalizer_off(widgets: WidgetSource) -> None:
    widgets.create("kept", finalizers=[FINALIZER, OTHER])
    answer = widgets.knell(
        widgets.config(), "--output", "json", "gc", "disable", f"{widgets.crd.plural}/kept", "-n", widgets.namespace
    )
    assert answer.code == 0, answer.err
    assert (answer.json["gc"], answer.json["finalizer"], answer.json["going"]) == ("disabled", False, False)
    meta = widgets.get("kept")["metadata"]
    assert meta["finalizers"] == [OTHER]
    assert meta["annotations"] == {GC: "disabled"}


def test_disable_leaves_the_finalizer_of_an_object_that_is_going_to_the_workers(widgets: WidgetSource) -> None:
    widgets.create("going", finalizers=[FINALIZER])
    widgets.delete("going")
    answer = widgets.knell(widgets.config(), "gc", "disable", f"{widgets.crd.kind}/going", "-n", widgets.namespace)
    assert answer.code == 0, answer.err
    assert "already going" in answer.out
    assert widgets.marked("going")
    assert widgets.get("going")["metadata"]["annotations"] == {GC: "disabled"}


def test_enable_refuses_an_object_that_is_going(widgets: WidgetSource) -> None:
    widgets.create("late", finalizers=[OTHER])
    widgets.delete("late")
    answer = widgets.knell(widgets.config(), "gc", "enable", f"{widgets.crd.plural}/late", "-n", widgets.namespace)
    assert answer.code == 1
    assert "already going" in answer.err
    assert widgets.get("late")["metadata"]["finalizers"] == [OTHER]
    assert GC not in widgets.get("late")["metadata"].get("annotations", {})


@pytest.mark.parametrize("changes", [{"mode": "observe"}, {"dry_run": True}, {"policy": {"dry_run": True}}])
def test_enable_adds_no_finalizer_where_none_is_wanted(widgets: WidgetSource, changes: dict[str, Any]) -> None:
    widgets.create("seen")
    config = widgets.config(**changes)
    answer = widgets.knell(config, "gc", "enable", f"{widgets.crd.plural}/seen", "-n", widgets.namespace)
    assert answer.code == 0, answer.err
    assert "without a finalizer" in answer.out
    assert not widgets.marked("seen")
    assert widgets.get("seen")["metadata"]["annotations"] == {GC: "enabled"}


def test_a_missing_object_is_reported_in_one_sentence(widgets: WidgetSource) -> None:
    config = widgets.config()
    gone = widgets.knell(config, "gc", "enable", f"{widgets.crd.plural}/nobody", "-n", widgets.namespace)
    assert (gone.code, "say which namespace by -n" in gone.err) == (1, True)
    unknown = widgets.knell(config, "gc", "enable", "gadgets/one")
    assert unknown.code == 2
    assert f"no source watches 'gadgets'; resources of sources: {widgets.crd.resource}" in unknown.err
    nothing = widgets.knell(config, "gc", "enable", "widgets")
    assert (nothing.code, "is no KIND/NAME" in nothing.err) == (2, True)


def test_an_ambiguous_kind_asks_which(widgets: WidgetSource) -> None:
    twin = {"resource": widgets.crd.resource, "collector": "none"}
    here = {"kubeconfig": str(widgets.api.kubeconfig(widgets.folder / "twin")), "context": "local"}
    config = widgets.config(
        "twins",
        clusters={"here": here, "there": here},
        sources={"one": {**twin, "cluster": "here"}, "two": {**twin, "cluster": "there"}},
    )
    answer = widgets.knell(config, "gc", "enable", f"{widgets.crd.resource}/x", "-n", widgets.namespace)
    assert answer.code == 2
    assert "of cluster here" in answer.err
    assert "of cluster there" in answer.err
    widgets.create("x")
    chosen = widgets.knell(
        config, "gc", "enable", f"{widgets.crd.resource}/x", "-n", widgets.namespace, "--cluster", "here"
    )  # fmt: skip
    assert chosen.code == 0, chosen.err


@pytest.mark.parametrize(("changes", "words"), [
    ({"namespaces": ["elsewhere"]}, "is not about namespace"), ({"selector": "team=a"}, "don't fit the selector"),
])  # fmt: skip
def test_enable_refuses_what_no_source_watches(widgets: WidgetSource, changes: dict[str, Any], words: str) -> None:
    """Without a watcher the finalizer would never be removed."""
    widgets.create("apart")
    answer = widgets.knell(
        widgets.config(**changes), "gc", "enable", f"{widgets.crd.plural}/apart", "-n", widgets.namespace
    )
    assert answer.code == 1
    assert words in answer.err
    assert not widgets.marked("apart")
    assert GC not in widgets.get("apart")["metadata"].get("annotations", {})
