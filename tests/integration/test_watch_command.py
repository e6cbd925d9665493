"""`knell watch` and `knell run` as real processes: their work, their readiness and errors, and their shutdown."""

import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.engine.installation import Installation
from service.sources.registry import SOURCES
from standins.ports import free_ports
from standins.redis_servers import LocalRedis
from tests.api_servers import TestApi
from tests.integration.knell_process import AT_ONCE, KnellProcess, until, with_installation
from tests.integration.widget_source import WidgetSource, widget_source
from tests.kube import Crd
from tests.redis_servers import TestServer

pytestmark = pytest.mark.long

Start = Callable[..., KnellProcess]


@pytest.fixture
def widgets(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> WidgetSource:
    return widget_source(api, embedded_server, tmp_path)


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[KnellProcess] = []

    def begin(widgets: WidgetSource, config: Path, *words: str, **variables: str) -> KnellProcess:
        started.append(widgets.start(config, *words, **variables))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


def readiness(process: KnellProcess) -> tuple[int, dict[str, str], dict[str, str]]:
    """HTTP status of /readyz, and its hindrances and problems with their reasons."""
    status, text = process.get("/readyz")
    if not text:
        return status, {}, {}
    body = msgspec.json.decode(text)
    hindrances, problems = body["hindrances"], body.get("problems", [])
    return status, {one["what"]: one["why"] for one in hindrances}, {one["what"]: one["why"] for one in problems}


def remembered(widgets: WidgetSource, name: str, uid: str) -> None:
    async def write(installation: Installation) -> None:
        await installation.caller.command("HSET", installation.keys.of(0, "clusters"), name, uid)

    with_installation(widgets.redis, write)


def own_uid(widgets: WidgetSource) -> str:
    found: Any = widgets.api.kube.get("/api/v1/namespaces/kube-system")
    return str(found["metadata"]["uid"])


def test_watch_marks_and_publishes_counts_it_and_hands_its_lease_back(widgets: WidgetSource, start: Start) -> None:
    process = start(widgets, widgets.config(), "watch")
    process.until_ready()
    until("it holds the lease", lambda: process.number("knell_source_lease_held") == 1)
    until("it has listed", lambda: process.number("knell_source_relists_total") >= 1)
    widgets.create("one")
    until("it is marked", lambda: widgets.marked("one"))
    widgets.delete("one")
    until("it is published", lambda: process.number("knell_source_published_total") == 1)
    assert widgets.marked("one")
    assert process.number("knell_source_marked_total") == 1
    assert process.number("knell_source_problem") == 0
    assert process.number("knell_cluster_up") == 1
    assert widgets.holder() == f"worker-{process.port}"
    process.process.send_signal(signal.SIGTERM)
    assert process.end(AT_ONCE) == 0
    assert widgets.holder() == ""


def test_run_does_both_sides_until_the_object_is_released(widgets: WidgetSource, start: Start) -> None:
    process = start(widgets, widgets.config(), "run")
    process.until_ready()
    until("it watches", lambda: process.number("knell_source_relists_total") >= 1)
    widgets.create("one")
    until("it is marked", lambda: widgets.marked("one"))
    widgets.delete("one")
    until("it is released", lambda: widgets.get("one") is None)
    assert process.number("knell_process_planned_total") == 1
    process.process.send_signal(signal.SIGINT)
    assert process.end(AT_ONCE) == 0
    assert widgets.holder() == ""


@pytest.mark.long
@pytest.mark.parametrize("commands", [("run",), ("watch", "work")])
@pytest.mark.parametrize("word", ["retain", "things=retain"])
def test_the_policy_can_be_given_by_option(
    widgets: WidgetSource, start: Start, commands: tuple[str, ...], word: str
) -> None:
    config = widgets.config(service="things", policy={"deletion_policy": "delete"})
    processes = [start(widgets, config, command, "--deletion-policy", word) for command in commands]
    for process in processes:
        process.until_ready()
    until("it watches", lambda: processes[0].number("knell_source_relists_total") >= 1)
    widgets.create("one")
    until("it is marked", lambda: widgets.marked("one"))
    widgets.delete("one")
    until("it is released", lambda: widgets.get("one") is None)

    def policies() -> list[str]:
        found = widgets.knell(config, "deletions", "list", "--state", "done", "--output", "json").json["deletions"]
        return [one["policy"] for one in found]

    until("it is done", lambda: len(policies()) == 1)
    setting = "policy.services.things" if "=" in word else "policy.deletion_policy"
    assert policies() == [f"retain: the setting {setting} says retain"]


def test_without_a_cluster_it_is_alive_and_reports_why_it_is_not_ready(widgets: WidgetSource, start: Start) -> None:
    (port,) = free_ports(1)
    path = widgets.api.kubeconfig(widgets.folder / "away")
    path.write_text(path.read_text().replace(widgets.api.url, f"https://127.0.0.1:{port}"))
    process = start(widgets, widgets.config(clusters={"here": {"kubeconfig": str(path), "context": "local"}}), "watch")
    until("it lives", lambda: process.get("/healthz")[0] == 200)
    until("it has tried", lambda: "no connection" in readiness(process)[1].get("cluster here", ""))
    status, hindrances, _ = readiness(process)
    assert (status, set(hindrances)) == (503, {"cluster here"})
    assert process.number("knell_cluster_up") == 0
    process.process.send_signal(signal.SIGTERM)
    assert process.end(AT_ONCE) == 0


@pytest.mark.long
def test_an_unreachable_cluster_does_not_affect_the_others(widgets: WidgetSource, start: Start) -> None:
    (port,) = free_ports(1)
    path = widgets.api.kubeconfig(widgets.folder / "away")
    path.write_text(path.read_text().replace(widgets.api.url, f"https://127.0.0.1:{port}"))
    here = {"kubeconfig": str(widgets.api.kubeconfig(widgets.folder / "here")), "context": "local"}
    source = {"resource": widgets.crd.resource, "collector": "none"}
    config = widgets.config(
        clusters={"away": {"kubeconfig": str(path), "context": "local"}, "here": here},
        sources={"far": {**source, "cluster": "away"}, "widgets": {**source, "cluster": "here"}},
    )
    process = start(widgets, config, "watch")
    process.until_ready()
    until("it watches", lambda: widgets.holder())
    widgets.create("one")
    until("it is marked", lambda: widgets.marked("one"))
    assert "cluster away" in readiness(process)[2]


def test_without_redis_it_is_alive_and_reports_why_it_is_not_ready(widgets: WidgetSource, start: Start) -> None:
    server = LocalRedis(port=free_ports(1)[0])
    away = msgspec.structs.replace(server.settings(), prefix=widgets.redis.prefix)
    process = start(widgets, widgets.config(), "watch", KNELL_REDIS_URL=str(away.url))
    until("it lives", lambda: process.get("/healthz")[0] == 200)
    until("it says so", lambda: "redis" in readiness(process)[1])
    assert widgets.lease() is None
    try:
        server.start()
        process.until_ready()
        until("it watches", lambda: widgets.holder())
        widgets.create("one")
        until("it is marked", lambda: widgets.marked("one"))
    finally:
        server.stop()


def test_a_source_that_is_not_installed_is_shown_and_watched_once_it_is(widgets: WidgetSource, start: Start) -> None:
    later = Crd(group="knell.test", plural=f"later{widgets.home}s")
    source = {"collector": "none"}
    sources = {
        "later": {**source, "resource": later.resource},
        "widgets": {**source, "resource": widgets.crd.resource},
    }
    process = start(widgets, widgets.config(sources=sources), "watch")
    process.until_ready()
    until("it is shown", lambda: "source later" in readiness(process)[2])
    assert process.number("knell_source_problem") == 1
    until("it watches", lambda: widgets.holder())
    widgets.create("one")
    until("the other source is watched", lambda: widgets.marked("one"))
    widgets.api.kube.install(later)
    try:
        until("it is well", lambda: "source later" not in readiness(process)[2])
        path = later.path(widgets.namespace)
        widgets.api.kube.create(path, later.body("two"))
        until("it is marked", lambda: widgets.api.kube.get(f"{path}/two")["metadata"].get("finalizers"))  # type: ignore[index]
        assert readiness(process)[0] == 200
    finally:
        process.process.kill()
        widgets.api.kube.patch(f"{later.path(widgets.namespace)}/two", {"metadata": {"finalizers": None}})
        widgets.api.kube.delete(later.own_path)


@pytest.mark.long
def test_a_missing_namespace_is_named_with_what_to_do(widgets: WidgetSource, start: Start) -> None:
    missing = f"{widgets.home}x"
    config = widgets.config(watch={"namespace": missing})
    process = start(widgets, config, "watch")
    until("it is shown", lambda: "source widgets" in readiness(process)[2])
    _, _, problems = readiness(process)
    assert f"there is no Namespace {missing} in cluster here" in problems["source widgets"]
    assert f"kubectl create namespace {missing}" in problems["source widgets"]
    widgets.create("one")
    assert not widgets.marked("one")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": missing}}
    widgets.api.kube.create("/api/v1/namespaces", body)
    until("it goes on", lambda: process.number("knell_source_lease_held") == 1)
    # Only what is younger than that is marked.
    widgets.create("two")
    until("it is marked", lambda: widgets.marked("two"))
    widgets.api.kube.delete(f"/api/v1/namespaces/{missing}")


def test_a_name_that_leads_to_another_cluster_is_refused_until_it_is_forgotten(
    widgets: WidgetSource, start: Start
) -> None:
    remembered(widgets, "here", "the-old-one")
    config = widgets.config()
    process = start(widgets, config, "watch")
    until("it is refused", lambda: "has always had uid the-old-one" in readiness(process)[1].get("cluster here", ""))
    status, hindrances, _ = readiness(process)
    assert status == 503
    assert "knell clusters forget here" in hindrances["cluster here"]
    widgets.create("one")
    assert widgets.lease() is None
    listed = widgets.knell(config, "clusters", "list", "--output", "json")
    assert [one["state"] for one in listed.json["clusters"]] == ["refused"]
    assert widgets.knell(config, "clusters", "forget", "here").code == 0
    process.until_ready()
    until("it goes on", lambda: widgets.holder())
    widgets.create("two")
    until("it is marked", lambda: widgets.marked("two"))


def test_a_uid_in_the_settings_counts_for_more_than_what_was_seen(widgets: WidgetSource, start: Start) -> None:
    remembered(widgets, "here", "the-old-one")
    here = {"kubeconfig": str(widgets.api.kubeconfig(widgets.folder / "admin")), "context": "local"}
    process = start(widgets, widgets.config(clusters={"here": {**here, "uid": own_uid(widgets)}}), "watch")
    process.until_ready()
    wrong = start(widgets, widgets.config("wrong", clusters={"here": {**here, "uid": "nobody"}}), "watch")
    until("it is refused", lambda: "should have uid nobody" in readiness(wrong)[1].get("cluster here", ""))


def test_of_two_names_for_one_cluster_only_one_is_watched(widgets: WidgetSource, start: Start) -> None:
    here = {"kubeconfig": str(widgets.api.kubeconfig(widgets.folder / "twin")), "context": "local"}
    source = {"resource": widgets.crd.resource, "collector": "none"}
    config = widgets.config(
        clusters={"one": here, "two": here},
        sources={"first": {**source, "cluster": "one"}, "second": {**source, "cluster": "two"}},
    )
    process = start(widgets, config, "watch")

    def refused() -> list[str]:
        return [name for name, why in readiness(process)[1].items() if "are the same cluster" in why]

    (later,) = until("one is refused", refused)
    watched, other = ("first", "second") if later == "cluster two" else ("second", "first")
    until("the other is watched", lambda: widgets.holder(f"knell-{watched}-0"))
    assert not widgets.holder(f"knell-{other}-0")


@pytest.mark.long
def test_the_moment_of_first_enabling_outlives_redis(
    widgets: WidgetSource, start: Start, embedded_server: TestServer
) -> None:
    path = f"/api/v1/namespaces/{widgets.home}/configmaps"
    created = datetime.fromisoformat(widgets.create("old")["metadata"]["creationTimestamp"])
    others = {"other": "2026-01-31T12:00:00Z"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knell-sources"}, "data": others}
    widgets.api.kube.create(path, body)
    until("another second has begun", lambda: datetime.now(UTC) >= created + timedelta(seconds=1))
    first = start(widgets, widgets.config(), "watch")
    # The source's own moment is written beside the other's.
    moment = until("it is written", lambda: kept(widgets).get("widgets"))
    first.process.send_signal(signal.SIGTERM)
    assert first.end(AT_ONCE) == 0
    second = start(widgets, widgets.config(), "watch", KNELL_REDIS_PREFIX=embedded_server.settings().prefix)
    until("it has listed", lambda: second.number("knell_source_relists_total") >= 1)
    assert kept(widgets) == {**others, "widgets": moment}
    assert datetime.fromisoformat(moment) > created
    widgets.create("new")
    until("the new one is marked", lambda: widgets.marked("new"))
    assert not widgets.marked("old")


def kept(widgets: WidgetSource) -> dict[str, str]:
    found: Any = widgets.api.kube.get(f"/api/v1/namespaces/{widgets.home}/configmaps/knell-sources")
    return dict(found["data"])


@pytest.mark.long
def test_after_redis_is_emptied_the_source_is_relisted(widgets: WidgetSource, start: Start) -> None:
    process = start(widgets, widgets.config(), "watch")
    until("it has listed", lambda: process.number("knell_source_relists_total") == 1)
    widgets.create("one")
    until("it is marked", lambda: widgets.marked("one"))
    widgets.delete("one")
    until("it is published", lambda: process.number("knell_source_published_total") == 1)

    async def empty(installation: Installation) -> None:
        client = installation.connections.client
        async for key in client.scan_iter(match=f"{widgets.redis.prefix}:*"):
            await client.delete(key)

    async def relist_request(installation: Installation) -> bytes | None:
        found: bytes | None = await installation.caller.command("HGET", installation.keys.of(0, "meta"), "relist")
        return found

    with_installation(widgets.redis, empty)
    until("it is published again", lambda: process.number("knell_source_published_total") == 2)
    until("a relist is requested and made", lambda: process.said("every source was listed again"))
    assert with_installation(widgets.redis, relist_request) is None
    assert process.number("knell_relist_wanted") == 0


@pytest.mark.long
@pytest.mark.parametrize("command", ["watch", "run"])
def test_a_wrong_shard_count_refuses_in_one_sentence(widgets: WidgetSource, start: Start, command: str) -> None:
    first = start(widgets, widgets.config(), command)
    first.until_ready()
    wrong = start(widgets, widgets.config(), command, KNELL_REDIS_SHARDS="3")
    assert wrong.end() == 1
    (line,) = [line for line in wrong.log.read_text().splitlines() if line.startswith("Error: ")]
    assert "the data is kept in 1 shards, but redis.shards says 3" in line
    assert "Traceback" not in wrong.log.read_text()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"collector": "magic"},
            f"sources.widgets.collector: 'magic' given; allowed: {', '.join(sorted(known.name for known in SOURCES))}",
        ),
        ({"selector": "a=b=c"}, "sources.widgets.selector"),
        ({"sources": {}}, "there is nothing to watch"),
    ],
)
def test_settings_that_can_not_be_watched_are_named(
    widgets: WidgetSource, start: Start, changes: dict[str, Any], words: str
) -> None:
    process = start(widgets, widgets.config(**changes), "watch")
    assert process.end() == 2
    assert words in process.log.read_text()
    assert "Traceback" not in process.log.read_text()
