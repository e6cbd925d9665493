"""Leases, by which replicas elect a holder, and Events, which users read.
Of two clients that take a Lease at the same time, one must be refused."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.conformance.api_caller import Caller
from tests.conformance.object_paths import EVENTS, LEASES, NEW_EVENTS

pytestmark = pytest.mark.long


async def test_of_two_takers_of_a_lease_one_is_refused(kube: Caller, namespace: str) -> None:
    one = LEASES.path(namespace, "one")
    made = await kube.made(LEASES.path(namespace), LEASES.body("one", spec={"holderIdentity": "a"}))
    takers = [{**made, "spec": {"holderIdentity": name, "leaseDurationSeconds": 15}} for name in ("b", "c")]
    replies = await asyncio.gather(*[kube.put(one, body) for body in takers])
    assert sorted(reply.status for reply in replies) == [200, 409]
    winner = next(reply for reply in replies if reply.status == 200)
    assert (await kube.get(one)).body["spec"]["holderIdentity"] == winner.body["spec"]["holderIdentity"]


async def test_of_two_creators_of_a_lease_one_is_refused(kube: Caller, namespace: str) -> None:
    body = LEASES.body("one", spec={"holderIdentity": "a"})
    replies = await asyncio.gather(*[kube.post(LEASES.path(namespace), body) for _ in range(2)])
    assert sorted(reply.status for reply in replies) == [201, 409]
    loser = next(reply for reply in replies if reply.status == 409)
    assert loser.reason == "AlreadyExists"


async def test_the_generated_client_renews_a_lease(kube: Caller, namespace: str) -> None:
    api = client.CoordinationV1Api(kube.client)
    now = datetime.now(UTC)
    spec = client.V1LeaseSpec(holder_identity="a", lease_duration_seconds=15, acquire_time=now, renew_time=now)
    made = await api.create_namespaced_lease(
        namespace, client.V1Lease(metadata=client.V1ObjectMeta(name="one"), spec=spec)
    )
    assert made.spec.renew_time == now
    later = datetime.now(UTC)
    made.spec.renew_time = later
    renewed = await api.replace_namespaced_lease("one", namespace, made)
    assert renewed.spec.renew_time == later
    assert int(renewed.metadata.resource_version) > int(made.metadata.resource_version)
    released = await api.patch_namespaced_lease("one", namespace, {"spec": {"holderIdentity": ""}})
    assert not released.spec.holder_identity


async def test_an_event_is_the_same_in_both_groups(kube: Caller, namespace: str) -> None:
    about = {"kind": "Widget", "namespace": namespace, "name": "one", "uid": "u-1"}
    made = await kube.made(
        NEW_EVENTS.path(namespace),
        NEW_EVENTS.body(
            "told",
            regarding=about,
            note="waiting for two load balancers",
            reason="Waiting",
            action="Deleting",
            type="Normal",
            eventTime="2026-01-01T00:00:00.000000Z",
            reportingController="knell.dev/controller",
            reportingInstance="one",
        ),
    )
    core = (await kube.get(EVENTS.path(namespace, "told"))).body
    assert core["metadata"]["uid"] == made["metadata"]["uid"]
    assert core["involvedObject"] == about
    assert core["message"] == "waiting for two load balancers"
    assert core["reportingComponent"] == "knell.dev/controller"
    await kube.made(EVENTS.path(namespace), EVENTS.body("old", involvedObject=about, message="hello", reason="Why"))
    new = (await kube.get(NEW_EVENTS.path(namespace, "old"))).body
    assert (new["regarding"], new["note"], new["reason"]) == (about, "hello", "Why")
    assert new["apiVersion"] == "events.k8s.io/v1"


async def test_events_are_selected_by_what_they_are_about(kube: Caller, namespace: str) -> None:
    core = client.CoreV1Api(kube.client)
    for name in ("a", "b"):
        about = {"kind": "Widget", "namespace": namespace, "name": name, "uid": f"uid-{name}"}
        await kube.made(EVENTS.path(namespace), EVENTS.body(f"of-{name}", involvedObject=about, reason="Held"))
    found = await core.list_namespaced_event(namespace, field_selector="involvedObject.uid=uid-b,reason=Held")
    assert [one.metadata.name for one in found.items] == ["of-b"]


async def test_an_event_lies_where_its_object_lies(kube: Caller, namespace: str) -> None:
    elsewhere = {"kind": "Widget", "namespace": "elsewhere", "name": "one"}
    reply = await kube.post(EVENTS.path(namespace), EVENTS.body("one", involvedObject=elsewhere))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert "does not match event.namespace" in reply.body["message"]
    nowhere = {"kind": "Gadget", "name": "one"}
    reply = await kube.post(EVENTS.path(namespace), EVENTS.body("one", involvedObject=nowhere))
    assert reply.status == 422
    reply = await kube.post(
        EVENTS.path("default"), EVENTS.body(metadata={"generateName": "about-a-gadget-"}, involvedObject=nowhere)
    )
    assert reply.status == 201


async def test_an_event_of_the_new_kind_must_be_complete(kube: Caller, namespace: str) -> None:
    complete: dict[str, Any] = {
        "regarding": {"kind": "Widget", "namespace": namespace, "name": "one"},
        "reason": "Waiting",
        "action": "Deleting",
        "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "knell.dev/controller",
        "reportingInstance": "one",
    }
    for field in ("reason", "action", "type", "eventTime", "reportingController", "reportingInstance"):
        lacking = {name: value for name, value in complete.items() if name != field}
        reply = await kube.post(NEW_EVENTS.path(namespace), NEW_EVENTS.body("lacking", **lacking))
        assert (reply.status, reply.reason) == (422, "Invalid"), field
        assert field in {cause["field"] for cause in reply.body["details"]["causes"]}
    long = {**complete, "note": "x" * 1025}
    assert (await kube.post(NEW_EVENTS.path(namespace), NEW_EVENTS.body("long", **long))).status == 422
    fits = {**complete, "note": "x" * 1024}
    assert (await kube.post(NEW_EVENTS.path(namespace), NEW_EVENTS.body("fits", **fits))).status == 201
