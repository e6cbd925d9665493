"""`knell watch` and `knell run` as real processes: what they do, what they say when they can't, and how they end."""

import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.engine.installation import Installation
from standins.ports import free_ports
from standins.servers import Server
from tests.clusters import TestApi
from tests.integration.declared import Declared, declare
from tests.integration.test_work_command import AT_ONCE, Process, until, with_installation
from tests.kube import Crd
from tests.servers import TestServer

Start = Callable[..., Process]


@pytest.fixture
def world(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> Declared:
    return declare(api, embedded_server, tmp_path)


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Process] = []

    def begin(world: Declared, config: Path, *words: str, **variables: str) -> Process:
        started.append(world.start(config, *words, **variables))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


def readiness(process: Process) -> tuple[int, dict[str, str], dict[str, str]]:
    """The status, and what is a hindrance and what a mere problem, each with its reason."""
    status, text = process.get("/readyz")
    if not text:
        return status, {}, {}
    body = msgspec.json.decode(text)
    hindrances, problems = body["hindrances"], body.get("problems", [])
    return status, {one["what"]: one["why"] for one in hindrances}, {one["what"]: one["why"] for one in problems}


def remembered(world: Declared, name: str, uid: str) -> None:
    async def write(installation: Installation) -> None:
        await installation.caller.command("HSET", installation.keys.of(0, "clusters"), name, uid)

    with_installation(world.redis, write)


def own_uid(world: Declared) -> str:
    found: Any = world.api.kube.get("/api/v1/namespaces/kube-system")
    return str(found["metadata"]["uid"])


def test_watch_marks_and_publishes_counts_it_and_hands_its_lease_back(world: Declared, start: Start) -> None:
    process = start(world, world.config(), "watch")
    process.until_ready()
    until("it holds the lease", lambda: process.number("knell_source_lease_held") == 1)
    until("it has listed", lambda: process.number("knell_source_relists_total") >= 1)
    world.create("one")
    until("it is marked", lambda: world.marked("one"))
    world.delete("one")
    until("it is published", lambda: process.number("knell_source_published_total") == 1)
    assert world.marked("one")
    assert process.number("knell_source_marked_total") == 1
    assert process.number("knell_source_problem") == 0
    assert process.number("knell_cluster_up") == 1
    assert world.holder() == f"worker-{process.port}"
    process.process.send_signal(signal.SIGTERM)
    assert process.end(AT_ONCE) == 0
    assert world.holder() == ""


def test_run_does_both_sides_until_the_object_is_released(world: Declared, start: Start) -> None:
    process = start(world, world.config(), "run")
    process.until_ready()
    until("it watches", lambda: process.number("knell_source_relists_total") >= 1)
    world.create("one")
    until("it is marked", lambda: world.marked("one"))
    world.delete("one")
    until("it is released", lambda: world.get("one") is None)
    assert process.number("knell_process_planned_total") == 1
    process.process.send_signal(signal.SIGINT)
    assert process.end(AT_ONCE) == 0
    assert world.holder() == ""


@pytest.mark.long
@pytest.mark.parametrize("commands", [("run",), ("watch", "work")])
@pytest.mark.parametrize("word", ["retain", "things=retain"])
def test_the_policy_can_be_given_by_option(world: Declared, start: Start, commands: tuple[str, ...], word: str) -> None:
    config = world.config(service="things", policy={"deletion_policy": "delete"})
    processes = [start(world, config, command, "--deletion-policy", word) for command in commands]
    for process in processes:
        process.until_ready()
    until("it watches", lambda: processes[0].number("knell_source_relists_total") >= 1)
    world.create("one")
    until("it is marked", lambda: world.marked("one"))
    world.delete("one")
    until("it is released", lambda: world.get("one") is None)

    def policies() -> list[str]:
        found = world.knell(config, "deletions", "list", "--state", "done", "--output", "json").json["deletions"]
        return [one["policy"] for one in found]

    until("it is done", lambda: len(policies()) == 1)
    setting = "policy.services.things" if "=" in word else "policy.deletion_policy"
    assert policies() == [f"retain: the setting {setting} says retain"]


def test_without_a_cluster_it_lives_and_says_why_it_is_not_ready(world: Declared, start: Start) -> None:
    (port,) = free_ports(1)
    path = world.api.kubeconfig(world.folder / "away")
    path.write_text(path.read_text().replace(world.api.url, f"https://127.0.0.1:{port}"))
    process = start(world, world.config(clusters={"here": {"kubeconfig": str(path), "context": "local"}}), "watch")
    until("it lives", lambda: process.get("/healthz")[0] == 200)
    until("it has tried", lambda: "no connection" in readiness(process)[1].get("cluster here", ""))
    status, hindrances, _ = readiness(process)
    assert (status, set(hindrances)) == (503, {"cluster here"})
    assert process.number("knell_cluster_up") == 0
    process.process.send_signal(signal.SIGTERM)
    assert process.end(AT_ONCE) == 0


@pytest.mark.long
def test_one_cluster_away_leaves_the_others_alone(world: Declared, start: Start) -> None:
    (port,) = free_ports(1)
    path = world.api.kubeconfig(world.folder / "away")
    path.write_text(path.read_text().replace(world.api.url, f"https://127.0.0.1:{port}"))
    here = {"kubeconfig": str(world.api.kubeconfig(world.folder / "here")), "context": "local"}
    source = {"resource": world.crd.resource, "collector": "none"}
    config = world.config(
        clusters={"away": {"kubeconfig": str(path), "context": "local"}, "here": here},
        sources={"far": {**source, "cluster": "away"}, "widgets": {**source, "cluster": "here"}},
    )
    process = start(world, config, "watch")
    process.until_ready()
    until("it watches", lambda: world.holder())
    world.create("one")
    until("it is marked", lambda: world.marked("one"))
    assert "cluster away" in readiness(process)[2]


def test_without_redis_it_lives_and_says_why_it_is_not_ready(world: Declared, start: Start) -> None:
    server = Server(port=free_ports(1)[0])
    away = msgspec.structs.replace(server.settings(), prefix=world.redis.prefix)
    process = start(world, world.config(), "watch", KNELL_REDIS_URL=str(away.url))
    until("it lives", lambda: process.get("/healthz")[0] == 200)
    until("it says so", lambda: "redis" in readiness(process)[1])
    assert world.lease() is None
    try:
        server.start()
        process.until_ready()
        until("it watches", lambda: world.holder())
        world.create("one")
        until("it is marked", lambda: world.marked("one"))
    finally:
        server.stop()


def test_a_source_that_is_not_installed_is_shown_and_watched_once_it_is(world: Declared, start: Start) -> None:
    later = Crd(group="knell.test", plural=f"later{world.home}s")
    source = {"collector": "none"}
    sources = {
        "later": {**source, "resource": later.resource},
        "widgets": {**source, "resource": world.crd.resource},
    }
    process = start(world, world.config(sources=sources), "watch")
    process.until_ready()
    until("it is shown", lambda: "source later" in readiness(process)[2])
    assert process.number("knell_source_problem") == 1
    until("it watches", lambda: world.holder())
    world.create("one")
    until("the other source is watched", lambda: world.marked("one"))
    world.api.kube.install(later)
    try:
        until("it is well", lambda: "source later" not in readiness(process)[2])
        path = later.path(world.namespace)
        world.api.kube.create(path, later.body("two"))
        until("it is marked", lambda: world.api.kube.get(f"{path}/two")["metadata"].get("finalizers"))  # type: ignore[index]
        assert readiness(process)[0] == 200
    finally:
        process.process.kill()
        world.api.kube.patch(f"{later.path(world.namespace)}/two", {"metadata": {"finalizers": None}})
        world.api.kube.delete(later.own_path)


@pytest.mark.long
def test_a_missing_namespace_is_named_with_what_to_do(world: Declared, start: Start) -> None:
    missing = f"{world.home}x"
    config = world.config(watch={"namespace": missing})
    process = start(world, config, "watch")
    until("it is shown", lambda: "source widgets" in readiness(process)[2])
    _, _, problems = readiness(process)
    assert f"there is no Namespace {missing} in cluster here" in problems["source widgets"]
    assert f"kubectl create namespace {missing}" in problems["source widgets"]
    world.create("one")
    assert not world.marked("one")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": missing}}
    world.api.kube.create("/api/v1/namespaces", body)
    until("it goes on", lambda: process.number("knell_source_lease_held") == 1)
    # Only what is younger than that is marked.
    world.create("two")
    until("it is marked", lambda: world.marked("two"))
    world.api.kube.delete(f"/api/v1/namespaces/{missing}")


def test_a_name_that_leads_to_another_cluster_is_refused_until_it_is_forgotten(world: Declared, start: Start) -> None:
    remembered(world, "here", "the-old-one")
    config = world.config()
    process = start(world, config, "watch")
    until("it is refused", lambda: "has always had uid the-old-one" in readiness(process)[1].get("cluster here", ""))
    status, hindrances, _ = readiness(process)
    assert status == 503
    assert "knell clusters forget here" in hindrances["cluster here"]
    world.create("one")
    assert world.lease() is None
    listed = world.knell(config, "clusters", "list", "--output", "json")
    assert [one["state"] for one in listed.json["clusters"]] == ["refused"]
    assert world.knell(config, "clusters", "forget", "here").code == 0
    process.until_ready()
    until("it goes on", lambda: world.holder())
    world.create("two")
    until("it is marked", lambda: world.marked("two"))


def test_a_uid_in_the_settings_counts_for_more_than_what_was_seen(world: Declared, start: Start) -> None:
    remembered(world, "here", "the-old-one")
    here = {"kubeconfig": str(world.api.kubeconfig(world.folder / "admin")), "context": "local"}
    process = start(world, world.config(clusters={"here": {**here, "uid": own_uid(world)}}), "watch")
    process.until_ready()
    wrong = start(world, world.config("wrong", clusters={"here": {**here, "uid": "nobody"}}), "watch")
    until("it is refused", lambda: "should have uid nobody" in readiness(wrong)[1].get("cluster here", ""))


def test_of_two_names_for_one_cluster_only_one_is_watched(world: Declared, start: Start) -> None:
    here = {"kubeconfig": str(world.api.kubeconfig(world.folder / "twin")), "context": "local"}
    source = {"resource": world.crd.resource, "collector": "none"}
    config = world.config(
        clusters={"one": here, "two": here},
        sources={"first": {**source, "cluster": "one"}, "second": {**source, "cluster": "two"}},
    )
    process = start(world, config, "watch")

    def refused() -> list[str]:
        return [name for name, why in readiness(process)[1].items() if "are the same cluster" in why]

    (later,) = until("one is refused", refused)
    watched, other = ("first", "second") if later == "cluster two" else ("second", "first")
    until("the other is watched", lambda: world.holder(f"knell-{watched}-0"))
    assert not world.holder(f"knell-{other}-0")


@pytest.mark.long
def test_the_moment_of_first_enabling_outlives_redis(
    world: Declared, start: Start, embedded_server: TestServer
) -> None:
    path = f"/api/v1/namespaces/{world.home}/configmaps"
    created = datetime.fromisoformat(world.create("old")["metadata"]["creationTimestamp"])
    others = {"other": "2026-01-31T12:00:00Z"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knell-sources"}, "data": others}
    world.api.kube.create(path, body)
    until("another second has begun", lambda: datetime.now(UTC) >= created + timedelta(seconds=1))
    first = start(world, world.config(), "watch")
    # The source's own moment is written beside the other's.
    moment = until("it is written", lambda: kept(world).get("widgets"))
    first.process.send_signal(signal.SIGTERM)
    assert first.end(AT_ONCE) == 0
    second = start(world, world.config(), "watch", KNELL_REDIS_PREFIX=embedded_server.settings().prefix)
    until("it has listed", lambda: second.number("knell_source_relists_total") >= 1)
    assert kept(world) == {**others, "widgets": moment}
    assert datetime.fromisoformat(moment) > created
    world.create("new")
    until("the new one is marked", lambda: world.marked("new"))
    assert not world.marked("old")


def kept(world: Declared) -> dict[str, str]:
    found: Any = world.api.kube.get(f"/api/v1/namespaces/{world.home}/configmaps/knell-sources")
    return dict(found["data"])


@pytest.mark.long
def test_what_was_lost_in_redis_is_listed_anew_and_crossed_out(world: Declared, start: Start) -> None:
    process = start(world, world.config(), "watch")
    until("it has listed", lambda: process.number("knell_source_relists_total") == 1)
    world.create("one")
    until("it is marked", lambda: world.marked("one"))
    world.delete("one")
    until("it is published", lambda: process.number("knell_source_published_total") == 1)

    async def empty(installation: Installation) -> None:
        client = installation.connections.client
        async for key in client.scan_iter(match=f"{world.redis.prefix}:*"):
            await client.delete(key)

    async def wish(installation: Installation) -> bytes | None:
        found: bytes | None = await installation.caller.command("HGET", installation.keys.of(0, "meta"), "relist")
        return found

    with_installation(world.redis, empty)
    until("it is published again", lambda: process.number("knell_source_published_total") == 2)
    until("a relist is asked for and made", lambda: process.said("everything was listed anew"))
    assert with_installation(world.redis, wish) is None
    assert process.number("knell_relist_wanted") == 0


@pytest.mark.long
@pytest.mark.parametrize("command", ["watch", "run"])
def test_a_wrong_shard_count_refuses_in_one_sentence(world: Declared, start: Start, command: str) -> None:
    first = start(world, world.config(), command)
    first.until_ready()
    wrong = start(world, world.config(), command, KNELL_REDIS_SHARDS="3")
    assert wrong.end() == 1
    (line,) = [line for line in wrong.log.read_text().splitlines() if line.startswith("Error: ")]
    assert "the data is kept in 1 shards, but redis.shards says 3" in line
    assert "Traceback" not in wrong.log.read_text()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"collector": "magic"},
            "sources.widgets.collector: 'magic' given; allowed: capa, karpenter-azure, none, simulated",
        ),
        ({"selector": "a=b=c"}, "sources.widgets.selector"),
        ({"sources": {}}, "there is nothing to watch"),
    ],
)
def test_settings_that_can_not_be_watched_are_named(
    world: Declared, start: Start, changes: dict[str, Any], words: str
) -> None:
    process = start(world, world.config(**changes), "watch")
    assert process.end() == 2
    assert words in process.log.read_text()
    assert "Traceback" not in process.log.read_text()
