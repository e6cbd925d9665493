"""`knell gc`: what it changes on an object, what it leaves alone, and what it says where it can't."""

from pathlib import Path
from typing import Any

import pytest

from service.contract.names import FINALIZER, GC
from tests.clusters import TestApi
from tests.integration.declared import Declared, declare
from tests.servers import TestServer

OTHER = "example.com/other"


@pytest.fixture
def world(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> Declared:
    return declare(api, embedded_server, tmp_path)


def test_enable_marks_an_object_and_keeps_what_others_put_there(world: Declared) -> None:
    world.create("old", finalizers=[OTHER], annotations={"note": "mine"})
    answer = world.knell(world.config(), "gc", "enable", f"{world.crd.resource}/old", "-n", world.namespace)
    assert answer.code == 0, answer.err
    assert "has the finalizer" in answer.out
    meta = world.get("old")["metadata"]
    assert sorted(meta["finalizers"]) == [OTHER, FINALIZER]
    assert meta["annotations"] == {"note": "mine", GC: "enabled"}
    again = world.knell(world.config(), "gc", "enable", f"{world.crd.resource}/old", "-n", world.namespace)
    assert again.code == 0
    assert world.get("old")["metadata"]["finalizers"].count(FINALIZER) == 1


def test_disable_takes_only_our_finalizer_off(world: Declared) -> None:
    world.create("kept", finalizers=[FINALIZER, OTHER])
    answer = world.knell(
        world.config(), "--output", "json", "gc", "disable", f"{world.crd.plural}/kept", "-n", world.namespace
    )
    assert answer.code == 0, answer.err
    assert (answer.json["gc"], answer.json["finalizer"], answer.json["going"]) == ("disabled", False, False)
    meta = world.get("kept")["metadata"]
    assert meta["finalizers"] == [OTHER]
    assert meta["annotations"] == {GC: "disabled"}


def test_disable_leaves_the_finalizer_of_an_object_that_is_going_to_the_workers(world: Declared) -> None:
    world.create("going", finalizers=[FINALIZER])
    world.delete("going")
    answer = world.knell(world.config(), "gc", "disable", f"{world.crd.kind}/going", "-n", world.namespace)
    assert answer.code == 0, answer.err
    assert "already going" in answer.out
    assert world.marked("going")
    assert world.get("going")["metadata"]["annotations"] == {GC: "disabled"}


def test_enable_refuses_an_object_that_is_going(world: Declared) -> None:
    world.create("late", finalizers=[OTHER])
    world.delete("late")
    answer = world.knell(world.config(), "gc", "enable", f"{world.crd.plural}/late", "-n", world.namespace)
    assert answer.code == 1
    assert "already going" in answer.err
    assert world.get("late")["metadata"]["finalizers"] == [OTHER]
    assert GC not in world.get("late")["metadata"].get("annotations", {})


@pytest.mark.parametrize("changes", [{"mode": "observe"}, {"dry_run": True}, {"policy": {"dry_run": True}}])
def test_enable_adds_no_finalizer_where_none_is_wanted(world: Declared, changes: dict[str, Any]) -> None:
    world.create("seen")
    config = world.config(**changes)
    answer = world.knell(config, "gc", "enable", f"{world.crd.plural}/seen", "-n", world.namespace)
    assert answer.code == 0, answer.err
    assert "without a finalizer" in answer.out
    assert not world.marked("seen")
    assert world.get("seen")["metadata"]["annotations"] == {GC: "enabled"}


def test_what_is_not_there_is_said_in_a_sentence(world: Declared) -> None:
    config = world.config()
    gone = world.knell(config, "gc", "enable", f"{world.crd.plural}/nobody", "-n", world.namespace)
    assert (gone.code, "say which namespace by -n" in gone.err) == (1, True)
    unknown = world.knell(config, "gc", "enable", "gadgets/one")
    assert unknown.code == 2
    assert f"no source watches 'gadgets'; resources of sources: {world.crd.resource}" in unknown.err
    nothing = world.knell(config, "gc", "enable", "widgets")
    assert (nothing.code, "is no KIND/NAME" in nothing.err) == (2, True)


def test_an_ambiguous_kind_asks_which(world: Declared) -> None:
    twin = {"resource": world.crd.resource, "collector": "none"}
    here = {"kubeconfig": str(world.api.kubeconfig(world.folder / "twin")), "context": "local"}
    config = world.config(
        "twins",
        clusters={"here": here, "there": here},
        sources={"one": {**twin, "cluster": "here"}, "two": {**twin, "cluster": "there"}},
    )
    answer = world.knell(config, "gc", "enable", f"{world.crd.resource}/x", "-n", world.namespace)
    assert answer.code == 2
    assert "of cluster here" in answer.err
    assert "of cluster there" in answer.err
    world.create("x")
    chosen = world.knell(
        config, "gc", "enable", f"{world.crd.resource}/x", "-n", world.namespace, "--cluster", "here"
    )  # fmt: skip
    assert chosen.code == 0, chosen.err


@pytest.mark.parametrize(("changes", "words"), [
    ({"namespaces": ["elsewhere"]}, "is not about namespace"), ({"selector": "team=a"}, "don't fit the selector"),
])  # fmt: skip
def test_enable_refuses_what_no_source_watches(world: Declared, changes: dict[str, Any], words: str) -> None:
    """A finalizer that nobody watches would hold the object for ever."""
    world.create("apart")
    answer = world.knell(world.config(**changes), "gc", "enable", f"{world.crd.plural}/apart", "-n", world.namespace)
    assert answer.code == 1
    assert words in answer.err
    assert not world.marked("apart")
    assert GC not in world.get("apart")["metadata"].get("annotations", {})
