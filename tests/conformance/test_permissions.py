"""Authorization: tokens, service accounts and RBAC.
A refusal names user, verb and resource, and never reveals whether the object exists."""

import pytest
from kubernetes_asyncio import client

from tests.conformance.api_caller import Caller, eventually
from tests.conformance.object_paths import ACCOUNTS, BINDINGS, MAPS, ROLES, Kind

pytestmark = pytest.mark.long


async def _account(kube: Caller, namespace: str, *rules: dict[str, list[str]]) -> str:
    """A token of a service account that may do only that in its namespace."""
    await kube.made(ACCOUNTS.path(namespace), ACCOUNTS.body("robot"))
    await kube.made(ROLES.path(namespace), ROLES.body("robot", rules=list(rules)))
    binding = BINDINGS.body(
        "robot",
        subjects=[{"kind": "ServiceAccount", "name": "robot", "namespace": namespace}],
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "robot"},
    )
    await kube.made(BINDINGS.path(namespace), binding)
    core = client.CoreV1Api(kube.client)
    wish = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=3600))
    issued = await core.create_namespaced_service_account_token("robot", namespace, wish)
    assert issued.status.expiration_timestamp is not None
    return str(issued.status.token)


async def test_a_missing_or_wrong_token_is_unauthorized(kube: Caller) -> None:
    for token in ("", "wrong"):
        async with kube.bearing(token) as nobody:
            reply = await nobody.get(MAPS.path("default"))
        assert (reply.status, reply.reason) == (401, "Unauthorized")
        assert reply.body["message"] == "Unauthorized"


async def test_a_service_account_may_do_what_its_role_says_and_no_more(
    kube: Caller, namespace: str, widgets: Kind
) -> None:
    token = await _account(
        kube,
        namespace,
        {"apiGroups": [widgets.group], "resources": ["widgets"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [widgets.group], "resources": ["widgets/status"], "verbs": ["patch"]},
    )
    await kube.made(widgets.path(namespace), widgets.body("one"))
    user = f'User "system:serviceaccount:{namespace}:robot"'
    async with kube.bearing(token) as robot:
        one = widgets.path(namespace, "one")
        await eventually("the role is known", lambda: robot.get(one), lambda reply: reply.status == 200)
        assert (await robot.get(widgets.path(namespace))).status == 200
        assert (await robot.merge(f"{one}/status", {"status": {"a": 1}})).status == 200

        refused = await robot.merge(one, {"spec": {"a": 1}})
        assert (refused.status, refused.reason) == (403, "Forbidden")
        assert refused.body["message"] == (
            f'{widgets.name} "one" is forbidden: {user} cannot patch resource "widgets" in API group '
            f'"{widgets.group}" in the namespace "{namespace}"'
        )
        assert refused.body["details"] == {"name": "one", "group": widgets.group, "kind": "widgets"}

        refused = await robot.get(widgets.path())
        assert refused.status == 403
        assert refused.body["message"] == (
            f'{widgets.name} is forbidden: {user} cannot list resource "widgets" in API group '
            f'"{widgets.group}" at the cluster scope'
        )
        refused = await robot.get(MAPS.path(namespace, "nobody"))
        assert (refused.status, refused.body["details"]) == (403, {"name": "nobody", "kind": "configmaps"})
        refused = await robot.delete(widgets.path(namespace))
        assert "cannot deletecollection resource" in refused.body["message"]
        refused = await robot.get(MAPS.path(namespace), watch="true")
        assert "cannot watch resource" in refused.body["message"]
        refused = await robot.get("/apis/nobody.knell.dev/v1/widgets")
        assert (refused.status, refused.reason) == (403, "Forbidden")
        refused = await robot.get(f"/api/v1/namespaces/{namespace}")
        assert (refused.status, refused.body["details"]) == (403, {"name": namespace, "kind": "namespaces"})
        assert (await robot.get(f"/apis/{widgets.group}/v1")).status == 200


async def test_a_role_for_one_name_allows_no_other(kube: Caller, namespace: str) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"], "resourceNames": ["mine"]}
    token = await _account(kube, namespace, rule)
    for name in ("mine", "yours"):
        await kube.made(MAPS.path(namespace), MAPS.body(name))
    async with kube.bearing(token) as robot:
        mine = MAPS.path(namespace, "mine")
        await eventually("the role is known", lambda: robot.get(mine), lambda reply: reply.status == 200)
        assert (await robot.get(MAPS.path(namespace, "yours"))).status == 403
        assert (await robot.get(MAPS.path(namespace))).status == 403


async def test_a_token_dies_with_its_account(kube: Caller, namespace: str) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    token = await _account(kube, namespace, rule)
    async with kube.bearing(token) as robot:
        path = MAPS.path(namespace)
        await eventually("the role is known", lambda: robot.get(path), lambda reply: reply.status == 200)
        await kube.delete(ACCOUNTS.path(namespace, "robot"))
        reply = await eventually("the token is refused", lambda: robot.get(path), lambda reply: reply.status != 200)
    assert (reply.status, reply.reason) == (401, "Unauthorized")


async def test_a_token_is_refused_for_too_short_a_time_or_an_unknown_account(kube: Caller, namespace: str) -> None:
    await kube.made(ACCOUNTS.path(namespace), ACCOUNTS.body("robot"))
    wish = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 5}}
    reply = await kube.post(ACCOUNTS.path(namespace, "robot", "token"), wish)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert "may not specify a duration less than 10 minutes" in reply.body["message"]
    reply = await kube.post(ACCOUNTS.path(namespace, "nobody", "token"), {**wish, "spec": {}})
    assert (reply.status, reply.body["details"]) == (404, {"name": "nobody", "kind": "serviceaccounts"})
