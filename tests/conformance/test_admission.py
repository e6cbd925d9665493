"""Admission: validating webhooks are asked about deletions, over TLS; configurations and policies are stored.
The webhook of these tests says what a test wants it to, and keeps the reviews that it got."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Self

import pytest
from aiohttp import web

from standins.redis_servers import TlsFiles
from tests.conformance.api_caller import Caller, Reply, eventually
from tests.conformance.conftest import install, kind_of
from tests.conformance.object_paths import DEFINITIONS, GROUP, MAPS, NAMESPACES, Kind, definition
from tests.tls_files import make_tls_files

pytestmark = pytest.mark.long

GROUP_PATH: Final = "/apis/admissionregistration.k8s.io/v1"
CONFIGURATIONS: Final = f"{GROUP_PATH}/validatingwebhookconfigurations"
FINALIZER: Final = "knell.dev/cleanup"
ALLOW: Final = {"allowed": True}
DENY: Final = {"allowed": False, "status": {"message": "it stays", "reason": "Forbidden", "code": 403}}
_READY: Final = "ready"

Request = dict[str, Any]
Answers = Callable[[Request], Any]


class ReviewServer:
    """`says` makes the response of each request: a dictionary, text, or a number that is an HTTP status. An awaitable
    is awaited first."""

    def __init__(self, files: TlsFiles) -> None:
        self.says: Answers = lambda _: ALLOW
        self.requests: list[Request] = []
        self.port = 0
        self._files = files
        self._runner: web.AppRunner | None = None
        self._transports: set[asyncio.Transport] = set()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/ask"

    @property
    def bundle(self) -> str:
        return base64.b64encode(self._files.ca.read_bytes()).decode()

    async def start(self) -> Self:
        app = web.Application()
        app.router.add_post("/ask", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._files.certificate, self._files.key)
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=context)
        await site.start()
        (self.port,) = {address[1] for address in self._runner.addresses}
        return self

    async def stop(self) -> None:
        if self._runner is None:
            return
        # Closed in order, TLS would wait for the other side's goodbye, for longer than the test's loop lives.
        for transport in self._transports:
            transport.abort()
        self._transports.clear()
        await self._runner.cleanup()
        self._runner = None

    def about(self, name: str) -> list[Request]:
        """Requests about the object of that name."""
        return [one for one in self.requests if one["oldObject"]["metadata"]["name"] == name]

    async def _handle(self, request: web.Request) -> web.Response:
        if request.transport is not None:
            self._transports.add(request.transport)
        asked: Request = (await request.json())["request"]
        if _READY in asked["oldObject"]["metadata"]["name"]:
            said: Any = DENY if asked["dryRun"] else ALLOW
        else:
            self.requests.append(asked)
            said = self.says(asked)
            if isinstance(said, Awaitable):
                said = await said
        if isinstance(said, int):
            return web.Response(status=said, text="broken")
        if isinstance(said, str):
            return web.Response(text=said, content_type="application/json")
        response = {"uid": asked["uid"], **said}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


class Door:
    """Stores configurations of the webhook, and removes them after the test."""

    def __init__(self, kube: Caller, server: ReviewServer, namespace: str, unique: str) -> None:
        self._kube, self._server, self._namespace = kube, server, namespace
        self.name = f"{unique}.knell.dev"
        self.webhook = f"objects.{self.name}"

    async def close(self, kind: Kind, **changes: Any) -> None:
        """Returns when deletions of objects of this kind in the test's Namespace are judged."""
        names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [self._namespace]}
        webhook = {
            "name": self.webhook,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": self._server.url, "caBundle": self._server.bundle},
            "namespaceSelector": {"matchExpressions": [names]},
            "rules": [_rule(kind)],
            **changes,
        }
        # The API server follows a new configuration after a moment: another webhook of it says when.
        ready = {
            **webhook,
            "name": f"ready.{self.name}",
            "clientConfig": {"url": self._server.url, "caBundle": self._server.bundle},
            "namespaceSelector": {"matchExpressions": [names]},
            "objectSelector": {"matchLabels": {"ready": self.name}},
            "rules": [_rule(MAPS)],
            "sideEffects": "None",
        }
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": self.name},
            "webhooks": [webhook, ready],
        }
        await self._kube.made(CONFIGURATIONS, body)
        probe = MAPS.path(self._namespace, _READY)
        labels = {"labels": {"ready": self.name}}
        await self._kube.post(MAPS.path(self._namespace), MAPS.body(_READY, metadata=labels))
        await eventually(
            "the webhook is asked", lambda: self._kube.delete(probe, dryRun="All"), lambda reply: reply.status == 403
        )

    async def open(self) -> None:
        await self._kube.delete(f"{CONFIGURATIONS}/{self.name}")


def _rule(kind: Kind, **changes: Any) -> dict[str, Any]:
    about = {"apiGroups": [kind.group], "apiVersions": [kind.version], "resources": [kind.plural]}
    return {"operations": ["DELETE"], **about, **changes}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("webhook"), strict=True)


@pytest.fixture
async def server(files: TlsFiles) -> AsyncIterator[ReviewServer]:
    started = await ReviewServer(files).start()
    yield started
    await started.stop()


@pytest.fixture
async def door(kube: Caller, server: ReviewServer, namespace: str, unique: str) -> AsyncIterator[Door]:
    door = Door(kube, server, namespace, unique)
    yield door
    await door.open()


async def test_a_denial_is_the_answer_to_the_delete_and_the_object_stays(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind
) -> None:
    await door.close(widgets)
    made = await kube.made(widgets.path(namespace), widgets.body("one", metadata={"annotations": {"a": "b"}}))
    server.says = lambda _: DENY
    reply = await kube.delete(widgets.path(namespace, "one"))
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert reply.body["message"] == f'admission webhook "{door.webhook}" denied the request: it stays'
    assert (await kube.get(widgets.path(namespace, "one"))).body == made
    server.says = lambda _: ALLOW
    assert (await kube.delete(widgets.path(namespace, "one"))).status == 200
    assert (await kube.get(widgets.path(namespace, "one"))).status == 404


async def test_a_review_holds_the_whole_object_and_who_deletes_it(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind
) -> None:
    await door.close(widgets)
    made = await kube.made(widgets.path(namespace), widgets.body("one", metadata={"annotations": {"a": "b"}}))
    made["metadata"].pop("managedFields", None)
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    await kube.delete(widgets.path(namespace, "one"), options)
    (asked,) = server.requests
    kind = {"group": GROUP, "version": "v1", "kind": "Widget"}
    resource = {"group": GROUP, "version": "v1", "resource": "widgets"}
    assert asked["kind"] == asked["requestKind"] == kind
    assert asked["resource"] == asked["requestResource"] == resource
    assert (asked["name"], asked["namespace"], asked["operation"]) == ("one", namespace, "DELETE")
    assert asked["userInfo"]["username"] == "admin"
    assert "system:masters" in asked["userInfo"]["groups"]
    assert asked["object"] is None
    old = asked["oldObject"]
    old["metadata"].pop("managedFields", None)
    assert old == made
    assert asked["dryRun"] is False
    assert asked["options"]["kind"] == "DeleteOptions"
    assert asked["options"]["propagationPolicy"] == "Background"


@pytest.mark.parametrize(
    ("status", "code", "reason", "words"),
    [
        ({"message": "it stays"}, 400, "", "denied the request: it stays"),
        ({"reason": "Forbidden", "code": 403}, 403, "Forbidden", "denied the request: Forbidden"),
        (None, 400, "", "denied the request without explanation"),
        ({"message": "it stays", "code": 200}, 400, "", "denied the request: it stays"),
    ],
)
async def test_a_denial_without_code_or_message_is_a_bad_request(
    kube: Caller,
    server: ReviewServer,
    door: Door,
    namespace: str,
    widgets: Kind,
    status: dict[str, Any] | None,
    code: int,
    reason: str,
    words: str,
) -> None:
    await door.close(widgets)
    await kube.made(widgets.path(namespace), widgets.body("one"))
    server.says = lambda _: {"allowed": False, **({} if status is None else {"status": status})}
    reply = await kube.delete(widgets.path(namespace, "one"))
    assert (reply.status, reply.reason) == (code, reason)
    assert reply.body["message"] == f'admission webhook "{door.webhook}" {words}'


async def test_a_dry_run_is_judged_and_deletes_nothing(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind
) -> None:
    await door.close(widgets)
    one = widgets.path(namespace, "one")
    made = await kube.made(widgets.path(namespace), widgets.body("one"))
    assert (await kube.delete(one, {"dryRun": ["All"]})).status == 200
    server.says = lambda _: DENY
    assert (await kube.delete(one, dryRun="All")).status == 403
    assert [(asked["dryRun"], asked["options"]["dryRun"]) for asked in server.requests] == [(True, ["All"])] * 2
    assert (await kube.get(one)).body == made


async def test_a_webhook_with_side_effects_takes_part_in_no_dry_run(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind
) -> None:
    # The API server refuses to store one with side effects, but for those that leave dry runs alone.
    await door.close(widgets, sideEffects="NoneOnDryRun")
    await kube.made(widgets.path(namespace), widgets.body("one"))
    assert (await kube.delete(widgets.path(namespace, "one"), dryRun="All")).status == 200
    assert [asked["dryRun"] for asked in server.requests] == [True]


async def test_a_collection_ends_at_the_first_denial_and_what_was_before_it_is_gone(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind
) -> None:
    await door.close(widgets)
    for name in ("a", "b", "c"):
        await kube.made(widgets.path(namespace), widgets.body(name))
    server.says = lambda asked: DENY if asked["oldObject"]["metadata"]["name"] == "b" else ALLOW
    reply = await kube.delete(widgets.path(namespace))
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert [asked.get("name", "") for asked in server.requests] == ["", ""]
    assert [asked["namespace"] for asked in server.requests] == [namespace] * 2
    left = (await kube.get(widgets.path(namespace))).body["items"]
    assert [one["metadata"]["name"] for one in left] == ["b", "c"]


async def test_without_an_answer_the_failure_policy_decides(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind
) -> None:
    await door.close(widgets)
    one = widgets.path(namespace, "one")
    await kube.made(widgets.path(namespace), widgets.body("one"))
    await server.stop()
    reply = await kube.delete(one)
    assert (reply.status, reply.reason) == (500, "InternalError")
    assert reply.body["message"] == (
        f'Internal error occurred: failed calling webhook "{door.webhook}": failed to call webhook: '
        f'Post "{server.url}?timeout=10s": dial tcp 127.0.0.1:{server.port}: connect: connection refused'
    )
    assert (await kube.get(one)).status == 200
    await door.open()
    await server.start()
    await door.close(widgets, failurePolicy="Ignore")
    await server.stop()
    assert (await kube.delete(one)).status == 200
    assert (await kube.get(one)).status == 404


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (500, "has prevented the request from succeeding"),
        ({"uid": "another", "allowed": True}, "received invalid webhook response: expected response.uid="),
        ("{}", "received invalid webhook response: webhook response was absent"),
        (
            '{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
            "received invalid webhook response: webhook response was absent",
        ),
        ("garbage", 'failed calling webhook "'),
    ],
)
async def test_an_answer_that_makes_no_sense_is_none(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind, said: object, words: str
) -> None:
    await door.close(widgets)
    await kube.made(widgets.path(namespace), widgets.body("one"))
    server.says = lambda _: said
    reply = await kube.delete(widgets.path(namespace, "one"))
    assert (reply.status, reply.reason) == (500, "InternalError")
    assert reply.body["message"].startswith(f'Internal error occurred: failed calling webhook "{door.webhook}": ')
    assert words in reply.body["message"]
    assert (await kube.get(widgets.path(namespace, "one"))).status == 200


async def test_a_webhook_that_takes_longer_than_its_timeout_gives_no_answer(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind
) -> None:
    await door.close(widgets, timeoutSeconds=1)
    await kube.made(widgets.path(namespace), widgets.body("one"))
    server.says = lambda _: asyncio.Event().wait()
    reply = await kube.delete(widgets.path(namespace, "one"))
    assert reply.status == 500
    assert reply.body["message"].startswith(f'Internal error occurred: failed calling webhook "{door.webhook}": ')
    assert "context deadline exceeded" in reply.body["message"]


async def test_a_certificate_of_another_authority_is_not_trusted(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind, tmp_path: Path
) -> None:
    other = make_tls_files(tmp_path, strict=True)
    bundle = base64.b64encode(other.ca.read_bytes()).decode()
    await door.close(widgets, clientConfig={"url": server.url, "caBundle": bundle})
    await kube.made(widgets.path(namespace), widgets.body("one"))
    reply = await kube.delete(widgets.path(namespace, "one"))
    assert (reply.status, reply.reason) == (500, "InternalError")
    assert "tls: failed to verify certificate: x509: " in reply.body["message"]
    assert not server.requests


async def test_only_what_rules_and_selectors_match_is_judged(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind
) -> None:
    await door.close(widgets, objectSelector={"matchExpressions": [{"key": "guarded", "operator": "Exists"}]})
    server.says = lambda _: DENY
    await kube.made(widgets.path(namespace), widgets.body("one", metadata={"labels": {"guarded": ""}}))
    await kube.made(widgets.path(namespace), widgets.body("two"))
    await kube.made(MAPS.path(namespace), MAPS.body("one", metadata={"labels": {"guarded": ""}}))
    assert (await kube.delete(widgets.path(namespace, "two"))).status == 200
    assert (await kube.delete(MAPS.path(namespace, "one"))).status == 200
    assert (await kube.delete(widgets.path(namespace, "one"))).status == 403
    assert len(server.requests) == 1


async def test_objects_of_another_namespace_are_not_judged(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind, unique: str
) -> None:
    await door.close(widgets)
    server.says = lambda _: DENY
    await kube.made(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}})
    await kube.made(widgets.path(unique), widgets.body("one"))
    assert (await kube.delete(widgets.path(unique, "one"))).status == 200
    await kube.delete(f"{NAMESPACES}/{unique}")


async def test_a_selector_of_namespaces_exempts_no_object_of_the_cluster(
    kube: Caller, server: ReviewServer, door: Door, gadgets: Kind, unique: str
) -> None:
    await door.close(gadgets, objectSelector={"matchLabels": {"test": unique}})
    server.says = lambda _: DENY
    await kube.made(gadgets.path(), gadgets.body(unique, metadata={"labels": {"test": unique}}))
    assert (await kube.delete(gadgets.path("", unique))).status == 403
    (asked,) = server.requests
    assert "namespace" not in asked
    server.says = lambda _: ALLOW
    assert (await kube.delete(gadgets.path("", unique))).status == 200


async def test_another_version_of_a_resource_is_judged_in_that_of_the_rule(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, unique: str
) -> None:
    wanted = definition(f"{unique}s", versions=("v1", "v2"))
    await install(kube, wanted)
    first, second = kind_of(wanted), kind_of(wanted, "v2")
    await kube.made(first.path(namespace), first.body("one"))
    await door.close(first)
    server.says = lambda _: DENY
    assert (await kube.delete(second.path(namespace, "one"))).status == 403
    (asked,) = server.requests
    assert (asked["resource"]["version"], asked["requestResource"]["version"]) == ("v1", "v2")
    assert asked["oldObject"]["apiVersion"] == f"{GROUP}/v1"
    await door.open()
    await door.close(first, matchPolicy="Exact")
    assert (await kube.delete(second.path(namespace, "one"))).status == 200
    await kube.delete(f"{DEFINITIONS}/{first.name}")


async def test_an_object_that_changed_while_it_was_judged_is_judged_again(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind
) -> None:
    await door.close(widgets)
    one = widgets.path(namespace, "one")
    await kube.made(widgets.path(namespace), widgets.body("one"))

    async def marked_meanwhile(asked: Request) -> dict[str, Any]:
        if asked["oldObject"]["metadata"].get("annotations"):
            return DENY
        await kube.merge(one, {"metadata": {"annotations": {"keep": "true"}}})
        return ALLOW

    server.says = marked_meanwhile
    assert (await kube.delete(one)).status == 403
    assert len(server.requests) == 2
    assert (await kube.get(one)).meta["annotations"] == {"keep": "true"}


async def test_a_second_delete_is_judged_and_taking_off_the_last_finalizer_is_not(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind
) -> None:
    await door.close(widgets)
    one = widgets.path(namespace, "one")
    await kube.made(widgets.path(namespace), widgets.body("one", metadata={"finalizers": [FINALIZER]}))
    assert (await kube.delete(one)).status == 200
    server.says = lambda _: DENY
    assert (await kube.delete(one)).status == 403
    assert (await kube.merge(one, {"metadata": {"finalizers": None}})).status == 200
    assert (await kube.get(one)).status == 404
    assert len(server.requests) == 2


async def test_a_namespace_whose_object_is_denied_hangs_with_the_message_until_it_is_allowed(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind
) -> None:
    await door.close(widgets)
    await kube.made(widgets.path(namespace), widgets.body("one"))
    await kube.made(widgets.path(namespace), widgets.body("two"))
    server.says = lambda asked: DENY if asked["oldObject"]["metadata"]["name"] == "two" else ALLOW
    assert (await kube.delete(f"{NAMESPACES}/{namespace}")).status == 200
    hanging = await eventually(
        "the Namespace says why it hangs",
        lambda: kube.get(f"{NAMESPACES}/{namespace}"),
        lambda reply: "denied the request: it stays" in _failure(reply),
    )
    assert hanging.body["status"]["phase"] == "Terminating"
    assert (await kube.get(widgets.path(namespace, "one"))).status == 404
    assert (await kube.get(widgets.path(namespace, "two"))).status == 200
    server.says = lambda _: ALLOW
    await eventually(
        "the Namespace is gone", lambda: kube.get(f"{NAMESPACES}/{namespace}"), lambda reply: reply.status == 404
    )
    assert "name" not in server.about("two")[0]


async def test_a_namespace_that_is_going_is_not_judged_again(
    kube: Caller, server: ReviewServer, door: Door, namespace: str
) -> None:
    await door.close(Kind("", "v1", "namespaces", "Namespace"))
    await kube.merge(f"{NAMESPACES}/{namespace}", {"metadata": {"finalizers": [FINALIZER]}})
    server.says = lambda _: DENY
    reply = await kube.delete(f"{NAMESPACES}/{namespace}")
    assert reply.body["message"] == f'admission webhook "{door.webhook}" denied the request: it stays'
    (asked,) = server.requests
    assert (asked["name"], asked["namespace"]) == (namespace, namespace)
    server.says = lambda _: ALLOW
    assert (await kube.delete(f"{NAMESPACES}/{namespace}")).status == 200
    server.says = lambda _: DENY
    await kube.delete(f"{NAMESPACES}/{namespace}")
    assert len(server.requests) == 2
    await kube.merge(f"{NAMESPACES}/{namespace}", {"metadata": {"finalizers": None}})


async def test_the_garbage_collector_is_denied_too_and_tries_again(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, widgets: Kind
) -> None:
    await door.close(widgets)
    owner = await kube.made(MAPS.path(namespace), MAPS.body("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    child = widgets.path(namespace, "child")
    await kube.made(widgets.path(namespace), widgets.body("child", metadata={"ownerReferences": [reference]}))
    server.says = lambda _: DENY
    assert (await kube.delete(MAPS.path(namespace, "owner"))).status == 200
    await eventually("it was denied twice", _length_of(server.requests), lambda length: length >= 2)
    assert (await kube.get(child)).status == 200
    server.says = lambda _: ALLOW
    await eventually("the child is gone", lambda: kube.get(child), lambda reply: reply.status == 404)


async def test_deleting_a_definition_judges_the_definition_and_none_of_its_objects(
    kube: Caller, server: ReviewServer, door: Door, namespace: str, unique: str
) -> None:
    wanted = definition(f"{unique}s")
    await install(kube, wanted)
    kind = kind_of(wanted)
    await kube.made(kind.path(namespace), kind.body("one"))
    definitions = Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
    mine = {"objectSelector": {"matchLabels": {"test": unique}}}
    place = f"{DEFINITIONS}/{kind.name}"
    await kube.merge(place, {"metadata": {"labels": {"test": unique}}})
    await door.close(definitions, rules=[_rule(definitions), _rule(kind)], **mine)
    server.says = lambda _: DENY
    assert (await kube.delete(place)).status == 403
    server.says = lambda asked: ALLOW if asked["kind"]["kind"] == "CustomResourceDefinition" else DENY
    assert (await kube.delete(place)).status == 200
    await eventually("the definition is gone", lambda: kube.get(place), lambda reply: reply.status == 404)
    assert {asked["name"] for asked in server.requests} == {kind.name}


async def test_no_webhook_is_asked_about_its_own_configuration(kube: Caller, server: ReviewServer, door: Door) -> None:
    configurations = Kind("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "")
    everything = {"apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["*"], "resources": ["*"]}
    await door.close(configurations, rules=[{"operations": ["DELETE"], **everything}])
    server.says = lambda _: DENY
    assert (await kube.delete(f"{CONFIGURATIONS}/{door.name}")).status == 200
    assert not server.requests


async def test_a_webhook_behind_a_service_that_is_missing_gives_no_answer(
    kube: Caller, door: Door, namespace: str, widgets: Kind, server: ReviewServer
) -> None:
    service = {"namespace": namespace, "name": "nowhere", "path": "/ask"}
    await door.close(widgets, clientConfig={"service": service, "caBundle": server.bundle})
    await kube.made(widgets.path(namespace), widgets.body("one"))
    reply = await kube.delete(widgets.path(namespace, "one"))
    assert reply.status == 500
    assert reply.body["message"] == (
        f'Internal error occurred: failed calling webhook "{door.webhook}": failed to call webhook: '
        f'Post "https://nowhere.{namespace}.svc:443/ask?timeout=10s": service "nowhere" not found'
    )


async def test_a_configuration_is_stored_with_defaults(kube: Caller, unique: str) -> None:
    webhook = {
        "name": f"objects.{unique}.knell.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/ask"},
        "rules": [],
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": unique},
        "webhooks": [webhook],
    }
    made = await kube.made(CONFIGURATIONS, body)
    (stored,) = made["webhooks"]
    assert (stored["failurePolicy"], stored["matchPolicy"], stored["timeoutSeconds"]) == ("Fail", "Equivalent", 10)
    assert (stored["namespaceSelector"], stored["objectSelector"]) == ({}, {})
    assert made["metadata"]["generation"] == 1
    reply = await kube.patch(
        f"{CONFIGURATIONS}/{unique}", {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}
    )
    assert reply.status == 200
    assert (await kube.delete(f"{CONFIGURATIONS}/{unique}")).status == 200


async def test_a_policy_and_its_binding_are_stored_with_defaults(kube: Caller, unique: str) -> None:
    rule = {"apiGroups": [GROUP], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["nothings"]}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": unique},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]},
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": unique},
        "spec": {"policyName": unique, "validationActions": ["Deny"]},
    }
    made = await kube.made(f"{GROUP_PATH}/validatingadmissionpolicies", policy)
    assert made["spec"]["failurePolicy"] == "Fail"
    constraints = made["spec"]["matchConstraints"]
    assert constraints["matchPolicy"] == "Equivalent"
    assert (constraints["namespaceSelector"], constraints["objectSelector"]) == ({}, {})
    assert constraints["resourceRules"] == [{**rule, "scope": "*"}]
    bound = await kube.made(f"{GROUP_PATH}/validatingadmissionpolicybindings", binding)
    assert bound["spec"] == binding["spec"]
    for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        listed = await kube.get(f"{GROUP_PATH}/{plural}")
        assert unique in {one["metadata"]["name"] for one in listed.body["items"]}
        assert (await kube.delete(f"{GROUP_PATH}/{plural}/{unique}")).status == 200


def _failure(reply: Reply) -> str:
    conditions = reply.body["status"].get("conditions", [])
    return "".join(
        one["message"]
        for one in conditions
        if (one["type"], one["status"]) == ("NamespaceDeletionContentFailure", "True")
    )


def _length_of(found: list[Request]) -> Callable[[], Awaitable[int]]:
    async def length() -> int:
        return len(found)

    return length
