"""`knell sources` shows the state of each source, and releases or drops objects that it holds.
The state comes from real watchers, which are stopped before the command runs, because their log would mix with its
output."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract.names import FINALIZER
from service.engine.guard import DeletedObject, Guard
from service.engine.inventory import Inventory, InventoryRecord
from service.settings import GuardSettings, WatchSettings
from tests.api_servers import TestApi
from tests.engine.engine_under_test import EngineUnderTest
from tests.integration.command_line import CommandResult, environment, invoke, knell, operated, start
from tests.integration.watched_source import OTHER, WatchedSource
from tests.redis_servers import TestServer

LEASE = "knell-widgets-0"
Write = Callable[..., str]


@pytest.fixture
def config(api: TestApi, watched: WatchedSource, tmp_path: Path) -> Write:
    """Writes settings with the source of `watched`, changed by what is given; returns the path."""

    def write(name: str = "widgets", **changes: Any) -> str:
        source = {"resource": watched.crd.resource, "collector": "none", "namespaces": [watched.namespace], **changes}
        document = {
            "clusters": {"here": {"kubeconfig": str(api.kubeconfig(tmp_path / "admin")), "context": "local"}},
            "sources": {name: source},
            "watch": {"namespace": watched.namespace},
        }
        path = tmp_path / f"{name}.yaml"
        path.write_bytes(msgspec.yaml.encode(document))
        return str(path)

    return write


async def run(watched: WatchedSource, *words: str, answer: str | None = None) -> CommandResult:
    return await asyncio.to_thread(invoke, environment(watched.settings.redis), *words, answer=answer)


async def only(watched: WatchedSource, path: str) -> Any:
    answer = await run(watched, "sources", "list", "--config", path, "--output", "json")
    assert answer.code == 0
    (one,) = answer.json["sources"]
    return one


async def restored(watched: WatchedSource) -> None:
    """Two observed objects; one disappears while no watcher runs, and the next list is older than the last one."""
    watched.create("one")
    watched.create("two")
    first = await watched.start(mode="observe")
    await first.stop()
    field = f"resource_version@{watched.namespace}"
    await watched.inventory.save_state({field: int((await watched.facts())[field]) + 1_000_000})
    watched.delete("one")
    second = await watched.start(mode="observe")
    await second.stop()


# ---- list


async def test_a_source_is_shown_with_where_its_watch_stands(watched: WatchedSource, config: Write) -> None:
    path = config()
    before = await only(watched, path)
    assert (before["declared"], before["listed"], before["owned"], before["held"]) == (True, None, None, 0)
    assert "never listed" in (await run(watched, "sources", "list", "--config", path)).out
    watched.create("one")
    running = await watched.start()
    await watched.until("it is marked", lambda: watched.marked("one"))
    await watched.until("that is seen", lambda: running.source.counters.events >= 1)
    await running.stop()
    one = await only(watched, path)
    shown = {name: one[name] for name in ("name", "resource", "cluster", "mode", "owned", "problem", "held")}
    assert shown == {
        "name": "widgets", "resource": watched.crd.resource, "cluster": "here", "mode": "finalizer", "owned": 1,
        "problem": "", "held": 0,
    }  # fmt: skip
    assert one["cluster_uid"] == await watched.cluster.identity()
    assert one["resource_version"].isdecimal()
    age = datetime.now(UTC) - datetime.fromisoformat(one["listed"])
    assert timedelta(minutes=-1) < age < timedelta(minutes=1)
    assert [each["name"] for each in one["lists"]] == [watched.namespace]
    table = (await run(watched, "sources", "list", "--config", path)).out
    assert "fine" in table
    assert "ago" in table
    assert "in trouble" not in table


async def test_a_source_with_a_problem_shows_it_and_since_when_also_in_the_status(
    watched: WatchedSource, config: Write
) -> None:
    running = await watched.start(ready=False, resource="nothing.knell.test")
    await watched.until("it is in trouble", lambda: running.source.problem)
    await running.stop()
    path = config()
    one = await only(watched, path)
    assert "nothing.knell.test" in one["problem"]
    assert one["problem_since"] is not None
    table = (await run(watched, "sources", "list", "--config", path)).out
    assert "in trouble" in table
    line = next(line for line in table.splitlines() if line.startswith("Source widgets is in trouble since 20"))
    status = await run(watched, "status", "--config", path)
    assert line in status.out
    picture = (await run(watched, "status", "--config", path, "--output", "json")).json
    assert picture["sources"][0]["problem"] == one["problem"]


async def test_a_source_without_a_problem_has_no_line_in_the_status(watched: WatchedSource, config: Write) -> None:
    running = await watched.start()
    await running.stop()
    answer = await run(watched, "status", "--config", config())
    assert answer.code == 0
    assert "widgets" not in answer.out


async def test_a_guard_that_has_tripped_is_shown(watched: WatchedSource, config: Write) -> None:
    guard = Guard(watched.installation)
    await guard.admit(
        "widgets", [DeletedObject(f"u{number}", 0) for number in range(20)], GuardSettings(most=2, percent=100)
    )
    path = config()
    assert (await only(watched, path))["guard_tripped"] is not None
    answer = await run(watched, "sources", "list", "--config", path)
    assert "The guard of widgets holds new deletions since 20" in answer.out


async def test_the_lease_holder_is_shown_while_it_renews_the_lease(watched: WatchedSource, config: Write) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{watched.namespace}/leases"
    lasts = WatchSettings().lease

    def hold(renewed: datetime) -> dict[str, Any]:
        spec = {"holderIdentity": "replica-7", "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE}, "spec": spec}

    path = config()
    assert (await only(watched, path))["leases"] == []
    watched.kube.create(leases, hold(datetime.now(UTC)))
    (lease,) = (await only(watched, path))["leases"]
    assert (lease["name"], lease["holder"]) == (LEASE, "replica-7")
    assert "replica-7" in (await run(watched, "sources", "list", "--config", path, "--output", "wide")).out
    watched.kube.patch(f"{leases}/{LEASE}", {"spec": hold(datetime.now(UTC) - 10 * lasts)["spec"]})
    table = (await run(watched, "sources", "list", "--config", path, "--output", "wide")).out
    assert "none (replica-7 until " in table


async def test_a_cluster_that_does_not_answer_hides_nothing_but_the_leases(
    watched: WatchedSource, config: Write
) -> None:
    path = config()
    text = Path(path).parent / "admin"
    text.write_text(text.read_text().replace(_address(text.read_text()), "http://127.0.0.1:1"))
    one = await only(watched, path)
    assert (one["leases"], one["name"]) == (None, "widgets")
    assert one["leases_unknown"]
    answer = await run(watched, "sources", "list", "--config", path)
    assert answer.code == 0
    assert "not known" in answer.out
    assert "Who holds Leases is not known" in answer.out


def _address(kubeconfig: str) -> str:
    found = msgspec.yaml.decode(kubeconfig)
    return str(found["clusters"][0]["cluster"]["server"])


async def test_without_any_source_it_says_so(embedded_server: TestServer) -> None:
    async with operated(embedded_server) as engine:
        answer = await knell(engine, "sources", "list")
    assert (answer.code, "There is no source" in answer.out) == (0, True)


# ---- relist


async def test_a_relist_is_made_by_the_watcher(watched: WatchedSource, config: Write) -> None:
    running = await watched.start()
    before = running.source.counters.relists
    path = config()
    # In a process of its own: the log of the watcher here must not mix with its output.
    process = start(environment(watched.settings.redis), "sources", "relist", "widgets", "--config", path)
    out, err = await asyncio.to_thread(process.communicate)
    assert (process.returncode, err) == (0, "")
    assert out == "A list of widgets is requested; the replica that watches it begins within seconds.\n"
    await watched.until("it is listed again", lambda: running.source.counters.relists > before)


@pytest.mark.parametrize("word", ["relist", "release", "drop"])
async def test_an_unknown_name_is_refused_with_the_known_ones(watched: WatchedSource, config: Write, word: str) -> None:
    answer = await run(watched, "sources", word, "wigdets", "--config", config())
    assert answer.code == 2
    assert "no source wigdets is known; there are: widgets" in answer.err


# ---- held objects


async def test_held_objects_are_shown_with_the_reason_and_can_be_released(
    watched: WatchedSource, config: Write
) -> None:
    await restored(watched)
    path = config(mode="observe")
    one = await only(watched, path)
    assert one["held"] == 1
    assert "restored from a backup" in one["held_why"]
    line = "Source widgets holds 1 object: the list is of resource version"
    for words in (("sources", "list"), ("status",)):
        answer = await run(watched, *words, "--config", path)
        assert line in answer.out
        assert "`knell sources drop widgets` forgets them" in answer.out

    refused = await run(watched, "sources", "release", "widgets", "--config", path, answer="n\n")
    assert (refused.code, "nothing was changed" in refused.err) == (1, True)
    assert f"widgets does not believe that 1 object ({watched.namespace}/one) is deleted: 1 because" in refused.out
    assert "what it owned outside is removed" in refused.out
    assert "restored" in (await watched.remembered())["one"]

    released = await run(watched, "sources", "release", "widgets", "--config", path, answer="y\n")
    assert released.code == 0
    assert "1 object of widgets is believed to be deleted" in released.out
    assert await watched.deletions() == {}
    await watched.start(mode="observe")
    assert set(await watched.until_published("one")) == {"one"}


async def test_held_objects_can_be_dropped(watched: WatchedSource, config: Write) -> None:
    await restored(watched)
    path = config(mode="observe")
    unasked = await run(watched, "sources", "drop", "widgets", "--config", path)
    assert (unasked.code, "was not answered" in unasked.err) == (1, True)
    dropped = await run(watched, "sources", "drop", "widgets", "--config", path, "--yes")
    assert (dropped.code, dropped.out) == (0, "1 object of widgets is forgotten.\n")
    assert await watched.remembered() == {"two": "lives"}
    running = await watched.start(mode="observe")
    await watched.until_listed_again(running)
    assert await watched.deletions() == {}


@pytest.mark.parametrize("word", ["release", "drop"])
async def test_a_source_that_holds_nothing_is_left_as_it_is(watched: WatchedSource, config: Write, word: str) -> None:
    watched.create("one")
    running = await watched.start(mode="observe")
    await running.stop()
    before = await watched.facts()
    answer = await run(watched, "sources", word, "widgets", "--config", config(mode="observe"))
    assert (answer.code, answer.out) == (0, "widgets holds nothing; nothing was changed.\n")
    assert await watched.facts() == before
    assert await watched.remembered() == {"one": "lives"}


async def test_objects_held_while_their_crd_is_deleted_can_be_released_but_not_dropped(
    watched: WatchedSource, config: Write
) -> None:
    watched.create("one", finalizers=[FINALIZER, OTHER])
    running = await watched.start()
    watched.kube.delete(watched.crd.own_path)

    async def held() -> bool:
        return (await watched.facts()).get(f"held@{watched.namespace}") == "1"

    await watched.until("its deletion is held", held)
    await running.stop()
    path = config()
    assert "the CRD of" in (await only(watched, path))["held_why"]
    refused = await run(watched, "sources", "drop", "widgets", "--config", path, "--yes")
    assert (refused.code, "can't be forgotten" in refused.err) == (1, True)
    released = await run(watched, "sources", "release", "widgets", "--config", path, answer="y\n")
    assert released.code == 0
    assert "widgets holds the deletion of 1 object: 1 because the CRD of" in released.out
    await watched.start()
    assert set(await watched.until_published("one")) == {"one"}


# ---- sources that are no longer declared


async def test_a_source_that_is_no_longer_declared_is_shown_and_can_only_be_dropped(
    watched: WatchedSource, config: Write
) -> None:
    watched.create("one")
    running = await watched.start(mode="observe")
    await running.stop()
    path = config("others")
    answer = await run(watched, "sources", "list", "--config", path, "--output", "json")
    others, widgets = answer.json["sources"]
    assert (others["name"], others["declared"]) == ("others", True)
    assert (widgets["name"], widgets["declared"], widgets["mode"]) == ("widgets", False, "observe")
    assert widgets["resource"] == watched.crd.resource
    table = (await run(watched, "sources", "list", "--config", path)).out
    assert "not declared" in table
    assert "go on when it is declared again, by this name" in table
    for word in ("relist", "release"):
        refused = await run(watched, "sources", word, "widgets", "--config", path)
        assert refused.code == 2
        assert "the settings do not declare widgets" in refused.err

    kept = await run(watched, "sources", "drop", "widgets", "--config", path, answer="n\n")
    assert kept.code == 1
    assert "everything that is remembered of it is forgotten" in kept.out
    assert "1 object." in kept.out
    assert await watched.remembered() == {"one": "lives"}
    dropped = await run(watched, "sources", "drop", "widgets", "--config", path, answer="y\n")
    assert dropped.code == 0
    assert "Everything of widgets is forgotten." in dropped.out
    assert (await watched.remembered(), await watched.facts()) == ({}, {})
    assert (await only(watched, path))["name"] == "others"


@pytest.fixture
async def engine(server: TestServer) -> AsyncIterator[EngineUnderTest]:
    async with operated(server) as made:
        yield made


async def test_remembered_sources_are_found_on_every_kind_of_server(engine: EngineUnderTest) -> None:
    old, older = Inventory(engine.installation, "old"), Inventory(engine.installation, "older")
    await old.save_state({"resource": "things.example.com", "mode": "observe", "held": 2, "held_why": "of old"})
    await older.save({"u1": InventoryRecord(v=1, name="one", gone=5)})
    found = (await knell(engine, "sources", "list", "--output", "json")).json["sources"]
    assert [(one["name"], one["declared"], one["held"]) for one in found] == [("old", False, 2), ("older", False, 0)]
    answer = await knell(engine, "sources", "drop", "older", answer="y\n")
    assert answer.code == 0
    assert "1 object of them is gone" in answer.out
    left = (await knell(engine, "sources", "list", "--output", "json")).json["sources"]
    assert [one["name"] for one in left] == ["old"]
