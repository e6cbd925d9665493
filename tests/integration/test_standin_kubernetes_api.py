"""Features of the embedded API alone: compaction, restore, seeding, ending watches, tokens with rules.
Its behaviour as a Kubernetes API is tested by the conformance suite."""

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes_asyncio import client, config

from standins.kubernetes_api import AccessRule, EmbeddedApi
from tests.conformance.api_caller import Caller
from tests.conformance.conftest import install, kind_of
from tests.conformance.object_paths import LEASES, MAPS, NAMESPACES, definition
from tests.engine.waiting import until

pytestmark = pytest.mark.long

_SHORT = timedelta(seconds=10)


@pytest.fixture
def own() -> Iterator[EmbeddedApi]:
    with EmbeddedApi(history=200, bookmark_every=timedelta(milliseconds=50)) as started:
        yield started


def _caller(own: EmbeddedApi, token: str = "") -> Caller:
    return Caller(own.url, token or own.token, own.ca)


def _maps(count: int, **metadata: Any) -> Iterator[dict[str, Any]]:
    return ({"metadata": {"name": f"n{number:05}", "namespace": "default", **metadata}} for number in range(count))


async def test_it_comes_back_on_its_port_with_its_data_in_the_middle_of_a_burst() -> None:
    with EmbeddedApi() as own:
        await _interrupt_a_burst(own)


async def _longer(made: list[str], than: int) -> bool:
    return len(made) > than


async def _interrupt_a_burst(own: EmbeddedApi) -> None:
    url = own.url
    async with _caller(own) as kube:
        start = (await kube.get(MAPS.path())).meta["resourceVersion"]
        made: list[str] = []
        over = False

        async def burst() -> None:
            while not over:
                name = f"n{len(made)}"
                # Refused or cut off: it is tried again, and may have been made the first time.
                with contextlib.suppress(aiohttp.ClientError):
                    assert (await kube.post(MAPS.path("default"), MAPS.body(name))).status in (201, 409)
                    made.append(name)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(burst())
            for number in range(3):
                await until("some were made", partial(_longer, made, 10 * number))
                await own.revive_apiserver()
            over = True
        assert own.url == url
        async with kube.watch(MAPS.path(), resourceVersion=start) as stream:
            seen = [(await stream.next(_SHORT))["object"]["metadata"]["name"] for _ in made]
    assert seen == made


async def test_a_watch_from_a_compacted_version_fails_in_the_stream_or_at_once() -> None:
    for refuses in (False, True):
        with EmbeddedApi(refuse_old_watches=refuses) as own:
            async with _caller(own) as kube:
                old = (await kube.get(MAPS.path())).meta["resourceVersion"]
                own.seed("configmaps", "v1", _maps(3))
                own.compact()
                reply = await kube.get(MAPS.path(), watch="true", resourceVersion=old)
        told = reply.body if refuses else reply.body["object"]
        assert (reply.status, told["code"], told["reason"]) == (410 if refuses else 200, 410, "Expired")


async def test_running_watches_outlive_a_compaction_unless_set_otherwise(own: EmbeddedApi) -> None:
    async with _caller(own) as kube:
        version = (await kube.get(MAPS.path())).meta["resourceVersion"]
        async with kube.watch(MAPS.path(), resourceVersion=version) as stream:
            own.seed("configmaps", "v1", _maps(2))
            own.compact()
            assert [(await stream.next(_SHORT))["type"] for _ in range(2)] == ["ADDED", "ADDED"]
            own.compact(end_watches=True)
            (event,) = await stream.rest(_SHORT)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_watches_end_in_order_on_command(own: EmbeddedApi) -> None:
    async with _caller(own) as kube, kube.watch(MAPS.path()) as stream:
        own.end_watches()
        assert await stream.rest(_SHORT) == []


async def test_history_is_bounded_and_what_lies_before_is_gone(own: EmbeddedApi) -> None:
    async with _caller(own) as kube:
        old = (await kube.get(MAPS.path())).meta["resourceVersion"]
        own.seed("configmaps", "v1", _maps(600))
        reply = await kube.get(MAPS.path(), watch="true", resourceVersion=old)
        assert reply.body["object"]["code"] == 410
        recent = int((await kube.get(MAPS.path())).meta["resourceVersion"]) - 50
        async with kube.watch(MAPS.path(), resourceVersion=recent) as stream:
            assert (await stream.next(_SHORT))["object"]["metadata"]["name"] == "n00550"


async def test_bookmarks_come_as_often_as_wished(own: EmbeddedApi) -> None:
    async with _caller(own) as kube, kube.watch(MAPS.path(), allowWatchBookmarks="true") as stream:
        made = await kube.made(MAPS.path("default"), MAPS.body("one"))
        events = [await stream.line(_SHORT) for _ in range(3)]
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK", "BOOKMARK"]
    assert events[2]["object"]["metadata"] == {"resourceVersion": made["metadata"]["resourceVersion"]}


async def test_a_watch_of_what_does_not_change_gets_no_bookmarks(own: EmbeddedApi) -> None:
    async with _caller(own) as kube:
        made = await kube.made(MAPS.path("default"), MAPS.body("one"))
        version = made["metadata"]["resourceVersion"]
        query = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": 1}
        async with kube.watch(MAPS.path(), **query) as stream:
            await kube.made(LEASES.path("default"), LEASES.body("elsewhere", spec={}))
            assert await stream.rest(_SHORT) == []


async def test_a_restored_server_is_as_it_was_with_lower_versions(own: EmbeddedApi) -> None:
    wanted = definition("widgets")
    kind = kind_of(wanted)
    async with _caller(own) as kube:
        await install(kube, wanted)
        await kube.made(kind.path("default"), kind.body("kept"))
        saved = own.save()
        await kube.delete(kind.path("default", "kept"))
        await kube.made(kind.path("default"), kind.body("lost"))
        last = (await kube.get(kind.path())).meta["resourceVersion"]
        async with kube.watch(kind.path(), resourceVersion=last) as stream:
            own.restore(saved)
            assert await stream.rest(_SHORT) == []
        listed = await kube.get(kind.path())
    assert [item["metadata"]["name"] for item in listed.body["items"]] == ["kept"]
    assert int(listed.meta["resourceVersion"]) < int(last)


async def test_a_token_has_its_rules_and_can_be_taken_away(own: EmbeddedApi) -> None:
    rule = AccessRule(verbs=("list",), groups=("",), resources=("configmaps",), namespaces=("default",))
    own.add_token("secret", "bob", rules=[rule])
    async with _caller(own, "secret") as bob:
        assert (await bob.get(MAPS.path("default"))).status == 200
        refused = await bob.get(MAPS.path("kube-system"))
        assert (refused.status, refused.reason) == (403, "Forbidden")
        assert 'User "bob" cannot list resource "configmaps"' in refused.body["message"]
        assert (await bob.get(MAPS.path())).status == 403
        own.remove_token("secret")
        assert (await bob.get(MAPS.path("default"))).status == 401


async def test_a_namespace_of_many_objects_empties(own: EmbeddedApi) -> None:
    async with _caller(own) as kube:
        await kube.made(NAMESPACES, {"metadata": {"name": "full"}})
        own.seed("configmaps", "v1", _maps(2_000, namespace="full"))
        reply = await kube.delete(f"{NAMESPACES}/full")
        version = reply.meta["resourceVersion"]
        async with kube.watch(NAMESPACES, resourceVersion=version, fieldSelector="metadata.name=full") as stream:
            assert (await stream.next(_SHORT))["type"] == "DELETED"
        assert (await kube.get(MAPS.path("full"))).body["items"] == []


async def test_the_kubeconfig_it_writes_is_read_by_the_generated_client(own: EmbeddedApi, tmp_path: Path) -> None:
    own.seed("serviceaccounts", "v1", [{"metadata": {"name": "robot", "namespace": "default"}}])
    path = own.kubeconfig(tmp_path / "config", token=own.token_of("default", "robot"))
    assert path.stat().st_mode & 0o077 == 0
    async with await config.new_client_from_config(str(path), context="local") as robot:
        with pytest.raises(client.ApiException, match="system:serviceaccount:default:robot"):
            await client.CoreV1Api(robot).list_node()


def test_two_of_them_are_two_clusters(own: EmbeddedApi) -> None:
    async def identity(one: EmbeddedApi) -> str:
        async with _caller(one) as kube:
            return str((await kube.get(f"{NAMESPACES}/kube-system")).meta["uid"])

    with EmbeddedApi() as other:
        assert other.url != own.url
        assert asyncio.run(identity(other)) != asyncio.run(identity(own))
