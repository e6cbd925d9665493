"""Changes of objects, finalizers among them, and the errors that a real API server answers with."""

import asyncio

import pytest

from service.contract.names import FINALIZER
from service.kubernetes import (
    CONFIGMAPS,
    Conflict,
    Invalid,
    KubeObject,
    KubernetesClient,
    NotFound,
    NotServed,
    ServedResource,
    add_finalizer,
    finalizer_addition,
    finalizer_removal,
    has_finalizer,
    remove_finalizer,
)
from tests.api_servers import TestApi
from tests.kube import Crd

OTHERS = ["other.test/first", "other.test/second"]


async def _live(cluster: KubernetesClient, served: ServedResource, namespace: str, name: str = "one") -> KubeObject:
    found = await cluster.get(served, namespace, name)
    assert found is not None
    return found


async def _arranged(
    api: TestApi, cluster: KubernetesClient, **metadata: object
) -> tuple[Crd, str, ServedResource, KubeObject]:
    crd, namespace = api.crd(), api.namespace()
    api.kube.create(crd.path(namespace), crd.body("one", **metadata))
    served = await cluster.discover(crd.resource)
    return crd, namespace, served, await _live(cluster, served, namespace)


async def test_both_kinds_of_patches_change_an_object(api: TestApi, cluster: KubernetesClient) -> None:
    _, namespace, served, _ = await _arranged(api, cluster)
    merged = await cluster.patch(served, namespace, "one", {"metadata": {"labels": {"a": "1"}}})
    assert merged.labels == {"a": "1"}
    replaced = await cluster.patch(
        served, namespace, "one", [{"op": "replace", "path": "/metadata/labels/a", "value": "2"}]
    )
    assert replaced.labels == {"a": "2"}
    assert (await _live(cluster, served, namespace)).labels == {"a": "2"}


async def test_what_a_server_refuses_has_a_type(api: TestApi, cluster: KubernetesClient) -> None:
    _, namespace, served, live = await _arranged(api, cluster)
    stale = {"metadata": {"resourceVersion": "1", "labels": {"a": "1"}}}
    with pytest.raises(Conflict):
        await cluster.patch(served, namespace, "one", stale)
    with pytest.raises(Invalid):
        await cluster.patch(served, namespace, "one", {"metadata": {"uid": "another", "labels": {"a": "1"}}})
    with pytest.raises(Invalid):
        await cluster.patch(served, namespace, "one", [{"op": "remove", "path": "/metadata/labels/nothing"}])
    with pytest.raises(NotFound) as caught:
        await cluster.patch(served, namespace, "nobody", {"metadata": {"labels": {"a": "1"}}})
    assert caught.value.name == "nobody"
    with pytest.raises(Conflict):
        await cluster.create(served, namespace, {"metadata": {"name": "one"}})
    with pytest.raises(NotFound):
        await cluster.create(CONFIGMAPS, "there-is-no-such-namespace", {"metadata": {"name": "one"}})
    with pytest.raises(NotServed):
        await cluster.request("GET", "/apis/nowhere.knell.test/v1/nothings")
    assert (await _live(cluster, served, namespace)).resource_version == live.resource_version


async def test_only_the_very_object_is_deleted(api: TestApi, cluster: KubernetesClient) -> None:
    _, namespace, served, live = await _arranged(api, cluster)
    with pytest.raises(Conflict):
        await cluster.delete(served, namespace, "one", uid="00000000-0000-0000-0000-000000000000")
    await cluster.delete(served, namespace, "one", uid=live.uid)
    assert await cluster.get(served, namespace, "one") is None
    with pytest.raises(NotFound):
        await cluster.delete(served, namespace, "one")


async def test_marking_adds_ours_and_keeps_the_others(api: TestApi, cluster: KubernetesClient) -> None:
    _, namespace, served, live = await _arranged(api, cluster, finalizers=OTHERS)
    done = await add_finalizer(cluster, served, live, FINALIZER)
    assert done is not None
    assert done.finalizers == (*OTHERS, FINALIZER)
    assert (await _live(cluster, served, namespace)).finalizers == (*OTHERS, FINALIZER)
    assert await add_finalizer(cluster, served, done, FINALIZER) is None


async def test_marking_what_has_changed_since_is_a_conflict(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace, served, live = await _arranged(api, cluster)
    api.kube.patch(crd.path(namespace, "one"), {"metadata": {"labels": {"knell": "opt-out"}}})
    with pytest.raises(Conflict):
        await add_finalizer(cluster, served, live, FINALIZER)
    assert not has_finalizer(await _live(cluster, served, namespace), FINALIZER)


async def test_an_object_that_is_going_is_never_marked(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace, served, before = await _arranged(api, cluster, finalizers=OTHERS)
    api.kube.delete(crd.path(namespace, "one"))
    assert await add_finalizer(cluster, served, await _live(cluster, served, namespace), FINALIZER) is None
    with pytest.raises(Conflict):
        await add_finalizer(cluster, served, before, FINALIZER)
    assert not has_finalizer(await _live(cluster, served, namespace), FINALIZER)


async def test_unmarking_takes_ours_off_and_nothing_else(api: TestApi, cluster: KubernetesClient) -> None:
    finalizers = [OTHERS[0], FINALIZER, OTHERS[1]]
    crd, namespace, served, live = await _arranged(api, cluster, finalizers=finalizers)
    api.kube.delete(crd.path(namespace, "one"))
    assert await remove_finalizer(cluster, served, namespace, "one", live.uid, FINALIZER) == "removed"
    assert list((await _live(cluster, served, namespace)).finalizers) == OTHERS
    assert await remove_finalizer(cluster, served, namespace, "one", live.uid, FINALIZER) == "absent"


async def test_the_last_finalizer_taken_off_lets_the_object_go(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace, served, live = await _arranged(api, cluster, finalizers=[FINALIZER])
    api.kube.delete(crd.path(namespace, "one"))
    going = await _live(cluster, served, namespace)
    assert await remove_finalizer(cluster, served, namespace, "one", live.uid, FINALIZER, live=going) == "removed"
    assert await remove_finalizer(cluster, served, namespace, "one", live.uid, FINALIZER) == "gone"
    assert await remove_finalizer(cluster, served, namespace, "one", live.uid, FINALIZER, live=going) == "gone"


async def test_another_object_of_the_same_name_keeps_its_finalizer(api: TestApi, cluster: KubernetesClient) -> None:
    _, namespace, served, _ = await _arranged(api, cluster, finalizers=[FINALIZER])
    assert await remove_finalizer(cluster, served, namespace, "one", "the-uid-of-the-one-before", FINALIZER) == "other"
    assert has_finalizer(await _live(cluster, served, namespace), FINALIZER)


async def test_a_stale_view_of_a_name_that_came_back_touches_nothing(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace, served, before = await _arranged(api, cluster)
    api.kube.delete(crd.path(namespace, "one"))
    api.kube.create(crd.path(namespace), crd.body("one", finalizers=[FINALIZER, *OTHERS]))
    with pytest.raises(Conflict):
        await add_finalizer(cluster, served, before, FINALIZER)
    held = KubeObject(uid=before.uid, name="one", resource_version=before.resource_version, finalizers=(FINALIZER,))
    assert await remove_finalizer(cluster, served, namespace, "one", before.uid, FINALIZER, live=held) == "other"
    assert (await _live(cluster, served, namespace)).finalizers == (FINALIZER, *OTHERS)


async def test_unmarking_bears_a_stale_view_and_a_busy_neighbour(api: TestApi, cluster: KubernetesClient) -> None:
    _, namespace, served, live = await _arranged(api, cluster, finalizers=[*OTHERS, FINALIZER])

    async def busy() -> None:
        # Each of these may spoil one of eight tries.
        for number in range(7):
            await cluster.patch(served, namespace, "one", {"metadata": {"labels": {"turn": str(number)}}})

    _, released = await asyncio.gather(
        busy(), remove_finalizer(cluster, served, namespace, "one", live.uid, FINALIZER, live=live)
    )
    assert released == "removed"
    after = await _live(cluster, served, namespace)
    assert list(after.finalizers) == OTHERS
    assert after.labels == {"turn": "6"}


async def test_two_concurrent_removals_of_a_finalizer_remove_it_once(api: TestApi, cluster: KubernetesClient) -> None:
    _, namespace, served, live = await _arranged(api, cluster, finalizers=[*OTHERS, FINALIZER])
    results = await asyncio.gather(
        *(remove_finalizer(cluster, served, namespace, "one", live.uid, FINALIZER) for _ in range(5))
    )
    assert sorted(results) == ["absent"] * 4 + ["removed"]


def test_patches_name_what_they_were_decided_on() -> None:
    seen = KubeObject(uid="u", name="n", resource_version="41", finalizers=("a/b",))
    assert finalizer_addition(seen, FINALIZER) == {
        "metadata": {"uid": "u", "resourceVersion": "41", "finalizers": ["a/b", FINALIZER]}
    }
    assert finalizer_removal(seen, FINALIZER) is None
    ours = KubeObject(uid="u", name="n", resource_version="42", finalizers=(FINALIZER, "a/b"))
    assert finalizer_removal(ours, FINALIZER) == {
        "metadata": {"uid": "u", "resourceVersion": "42", "finalizers": ["a/b"]}
    }
    assert finalizer_addition(ours, FINALIZER) is None
    assert finalizer_addition(KubeObject(uid="u", name="n", deleting=1), FINALIZER) is None
