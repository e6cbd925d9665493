"""The admission policy for annotations of protection on the real control plane: only who has the verb `unprotect` on a
resource adds, changes or removes them."""

import uuid
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pytest

from service.admission.names import MARKS_POLICY
from standins.controlplane import KubectlFailed
from tests.integration.applied_policies import (
    BUCKETS,
    DRY,
    GADGETS,
    NAMESPACES,
    VAULTS,
    AppliedPolicies,
    of_policy,
    policies,
)
from tests.kube import Kube, KubeResponse, wait_until
from tests.protection_cases import PLAIN, SPECIFIC

__all__ = ["policies"]

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("plane")]

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
MARK: Final = PLAIN[0]
HELD: Final = "knell.test/hold"
EDITS: Final = ["get", "create", "update", "patch", "delete"]


class User(NamedTuple):
    """A service account."""

    name: str
    token: str
    kube: Kube


class Users(NamedTuple):
    """Both may edit everything; the guardian also has the verb `unprotect` on what is in the first API group and on
    Namespaces, and the keeper only in one Namespace."""

    editor: User
    guardian: User
    keeper: User
    kept: str


@pytest.fixture(scope="module")
def users(policies: AppliedPolicies) -> Users:
    home = policies.namespace()
    editor, guardian, keeper = (user(policies, home, name) for name in ("editor", "guardian", "keeper"))
    everywhere = [
        rule([BUCKETS.group, GADGETS.group], ["*"], EDITS),
        rule([""], ["namespaces", "namespaces/status", "namespaces/finalize"], EDITS),
    ]
    for one in (editor, guardian, keeper):
        grant(policies, one, everywhere)
    grant(
        policies,
        guardian,
        [rule([BUCKETS.group], ["*"], ["unprotect"]), rule([""], ["namespaces"], ["unprotect"])],
    )
    grant(policies, keeper, [rule([BUCKETS.group], ["*"], ["unprotect"])], home)
    bucket = policies.make(BUCKETS, home, {})
    mark = {MARK: "true"}
    # Without its role the editor would be denied, too.
    wait_until("the policy is", lambda: MARKS_POLICY in str(annotate(editor, bucket + DRY, mark).body))
    for one in (guardian, keeper):
        wait_until("the roles are", lambda one=one: annotate(one, bucket + DRY, mark).status == 200)  # type: ignore[misc]
    return Users(editor, guardian, keeper, home)


def user(policies: AppliedPolicies, home: str, name: str) -> User:
    policies.kube.create(f"{NAMESPACES}/{home}/serviceaccounts", {"metadata": {"name": name}})
    token = policies.plane.token_of(home, name)
    return User(f"system:serviceaccount:{home}:{name}", token, Kube(policies.plane.url, token, policies.plane.ca))


def rule(groups: list[str], resources: list[str], verbs: list[str]) -> dict[str, list[str]]:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


def grant(policies: AppliedPolicies, to: User, rules: list[dict[str, list[str]]], namespace: str = "") -> None:
    """In the whole cluster if there is no namespace."""
    _, _, home, account = to.name.split(":")
    name, prefix = f"t{uuid.uuid4().hex[:10]}", "" if namespace else "Cluster"
    place = f"{RBAC}/namespaces/{namespace}/" if namespace else f"{RBAC}/cluster"
    policies.kube.create(f"{place}roles", {"metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{prefix}Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": home}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    policies.kube.create(f"{place}rolebindings", binding)


def annotate(by: User, path: str, changes: Mapping[str, str | None]) -> KubeResponse:
    return by.kube.request("PATCH", path, {"metadata": {"annotations": changes}}, patch="merge")


def denied(answer: KubeResponse, mark: str, about: str, by: User, resource: str) -> bool:
    said = f"annotation {mark} of {about} can't be changed by {by.name} without the verb unprotect on {resource}"
    assert answer.status == 403, answer
    assert answer.body["message"].endswith(of_policy(said, MARKS_POLICY)), answer
    return True


def annotations(policies: AppliedPolicies, path: str) -> dict[str, str]:
    found = policies.kube.get(path)
    assert found is not None
    made: dict[str, str] = found["metadata"].get("annotations") or {}
    return made


@pytest.mark.parametrize("mark", [*PLAIN, *SPECIFIC, "rds.services.k8s.aws/prevent-delete"])
def test_who_lacks_the_verb_can_neither_add_nor_change_nor_remove_a_mark(
    policies: AppliedPolicies, users: Users, mark: str
) -> None:
    namespace = policies.namespace()
    about = f"in Namespace {namespace}"
    bare = policies.make(BUCKETS, namespace, {}, name="bare")
    assert denied(
        annotate(users.editor, bare, {mark: "true"}), mark, f"bucket/bare {about}", users.editor, BUCKETS.resource
    )
    marked = policies.make(BUCKETS, namespace, {mark: "true"}, name="marked")
    for change in ("false", "true ", None):
        answer = annotate(users.editor, marked, {mark: change, "example.com/other": "x"})
        assert denied(answer, mark, f"bucket/marked {about}", users.editor, BUCKETS.resource)
    assert annotations(policies, marked) == {mark: "true"}


def test_who_has_the_verb_adds_changes_and_removes_marks(policies: AppliedPolicies, users: Users) -> None:
    namespace = policies.namespace()
    for path in (policies.make(BUCKETS, namespace, {}), policies.make(VAULTS, "", {}), f"{NAMESPACES}/{namespace}"):
        for change in ("true", "false", None):
            assert annotate(users.guardian, path, {MARK: change}).status == 200, path


def test_the_verb_counts_only_on_the_resource_that_it_is_given_for(policies: AppliedPolicies, users: Users) -> None:
    namespace = policies.namespace()
    path = policies.make(GADGETS, namespace, {}, name="one")
    answer = annotate(users.guardian, path, {MARK: "true"})
    assert denied(answer, MARK, f"gadget/one in Namespace {namespace}", users.guardian, GADGETS.resource)


def test_the_verb_counts_only_in_the_namespace_that_it_is_given_in(policies: AppliedPolicies, users: Users) -> None:
    path = policies.make(BUCKETS, users.kept, {})
    assert annotate(users.keeper, path, {MARK: "true"}).status == 200
    elsewhere = policies.namespace()
    path = policies.make(BUCKETS, elsewhere, {}, name="one")
    answer = annotate(users.keeper, path, {MARK: "true"})
    assert denied(answer, MARK, f"bucket/one in Namespace {elsewhere}", users.keeper, BUCKETS.resource)


def test_marks_of_namespaces_and_of_cluster_scoped_objects_are_restricted_too(
    policies: AppliedPolicies, users: Users
) -> None:
    namespace = policies.namespace({MARK: "true"})
    answer = annotate(users.editor, f"{NAMESPACES}/{namespace}", {MARK: None})
    assert denied(answer, MARK, f"namespace/{namespace}", users.editor, "namespaces")
    path = policies.make(VAULTS, "", {MARK: "true"})
    answer = annotate(users.editor, path, {MARK: "false"})
    assert denied(answer, MARK, f"vault/{path.rpartition('/')[2]}", users.editor, VAULTS.resource)


def test_everything_else_about_a_marked_object_stays_free(policies: AppliedPolicies, users: Users) -> None:
    path = policies.make(BUCKETS, policies.namespace(), {MARK: "true"}, finalizers=[HELD])
    other = {"services.k8s.aws/deletion-policy": "retain", "prevent-delete": "x", "example.com/prevent-delete": "x"}
    assert annotate(users.editor, path, other).status == 200
    changes = {"metadata": {"labels": {"a": "b"}, "finalizers": None}, "spec": {"a": 1}}
    assert users.editor.kube.request("PATCH", path, changes, patch="merge").status == 200
    assert annotations(policies, path) == {MARK: "true", **other}


def test_who_creates_an_object_may_mark_it(policies: AppliedPolicies, users: Users) -> None:
    namespace = policies.namespace()
    body = BUCKETS.body("one", annotations={MARK: "true"})
    assert users.editor.kube.request("POST", BUCKETS.path(namespace), body).status == 201
    assert policies.try_delete(BUCKETS.path(namespace, "one"))


@pytest.mark.parametrize("subresource", ["status", "finalize"])
def test_no_subresource_of_a_namespace_is_a_way_round(
    policies: AppliedPolicies, users: Users, subresource: str
) -> None:
    namespace = policies.namespace({MARK: "true"})
    path = f"{NAMESPACES}/{namespace}"
    found = policies.kube.get(path)
    assert found is not None
    del found["metadata"]["annotations"]
    answer = users.editor.kube.request("PUT", f"{path}/{subresource}", found)
    assert denied(answer, MARK, f"namespace/{namespace}", users.editor, "namespaces")
    assert users.guardian.kube.request("PUT", f"{path}/{subresource}", found).status == 200
    # The server takes annotations along with these subresources: without the policy the mark would have been lost.
    assert annotations(policies, path) == {}


def test_the_status_of_a_marked_object_stays_free_and_takes_no_mark_along(
    policies: AppliedPolicies, users: Users
) -> None:
    path = policies.make(BUCKETS, policies.namespace(), {MARK: "true"})
    changes: dict[str, Any] = {"status": {"ready": True}, "metadata": {"annotations": {MARK: None}}}
    answer = users.editor.kube.request("PATCH", f"{path}/status", changes, patch="merge")
    assert (answer.status, answer.body["status"]) == (200, {"ready": True})
    assert annotations(policies, path) == {MARK: "true"}


def test_a_marked_object_can_be_scaled(policies: AppliedPolicies, users: Users) -> None:
    path = policies.make(GADGETS, policies.namespace(), {MARK: "true"})
    policies.kube.patch(path, {"spec": {"replicas": 1}})
    scaled = users.editor.kube.request("PATCH", f"{path}/scale", {"spec": {"replicas": 3}}, patch="merge")
    assert (scaled.status, scaled.body["kind"], scaled.body["spec"]) == (200, "Scale", {"replicas": 3})


def test_controllers_of_the_control_plane_delete_a_marked_namespace(policies: AppliedPolicies) -> None:
    namespace = policies.namespace({MARK: "true"})
    policies.make(BUCKETS, namespace, {MARK: "false"})
    policies.kube.delete(f"{NAMESPACES}/{namespace}")
    wait_until("it is gone", lambda: policies.kube.get(f"{NAMESPACES}/{namespace}") is None)


def test_thousands_of_annotations_neither_hide_a_mark_nor_keep_others_from_being_edited(
    policies: AppliedPolicies, users: Users
) -> None:
    crowd = {f"example.com/{number}": "true" for number in range(4_000)}
    namespace = policies.namespace()
    path = policies.make(BUCKETS, namespace, crowd, name="one")
    assert annotate(users.editor, path, {"example.com/other": "x"}).status == 200
    answer = annotate(users.editor, path, {MARK: "true"})
    assert denied(answer, MARK, f"bucket/one in Namespace {namespace}", users.editor, BUCKETS.resource)


def test_kubectl_prints_the_denial_as_one_line(policies: AppliedPolicies, users: Users) -> None:
    namespace = policies.namespace({MARK: "true"})
    with pytest.raises(KubectlFailed) as failed:
        policies.plane.kubectl("annotate", "namespace", namespace, f"{MARK}-", token=users.editor.token)
    said = of_policy(
        f"annotation {MARK} of namespace/{namespace} can't be changed by {users.editor.name} without the verb "
        "unprotect on namespaces",
        MARKS_POLICY,
    )
    (line,) = [line for line in str(failed.value).splitlines() if "forbidden" in line]
    assert line.endswith(f'namespaces "{namespace}" {said}')
