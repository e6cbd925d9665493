"""The admission policy for deletions on the real control plane: it decides and says what the pure function does."""

import re
from collections.abc import Iterable, Iterator

import msgspec
import pytest

from service.admission.names import POLICY
from standins.controlplane import KubectlFailed
from tests.integration.applied_policies import (
    BUCKETS,
    DRY,
    GADGETS,
    ITEMS,
    NAMESPACES,
    VAULTS,
    AppliedPolicies,
    Request,
    denial,
    judged,
    of_policy,
    policies,
)
from tests.kube import Crd, wait_until
from tests.protection_cases import PLAIN, SPECIFIC, ProtectionCase, protection_cases

__all__ = ["policies"]

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("plane")]

CASES = protection_cases()
PROTECTED = {PLAIN[0]: "true"}
HELD = "knell.test/hold"


@pytest.fixture(scope="module")
def namespaces(policies: AppliedPolicies) -> dict[str, str]:
    """The Namespaces of the table, by their annotations."""
    distinct = {key(case): case.namespace for case in CASES}
    return dict(zip(distinct, policies.namespaces(distinct.values()), strict=True))


def key(case: ProtectionCase) -> str:
    return msgspec.json.encode(case.namespace, order="sorted").decode()


@pytest.mark.parametrize("crd", [BUCKETS, GADGETS, ITEMS], ids=lambda crd: crd.plural)
def test_every_row_of_the_table_is_decided_and_worded_as_by_the_pure_function(
    policies: AppliedPolicies, namespaces: dict[str, str], crd: Crd
) -> None:
    places = [namespaces[key(case)] for case in CASES]
    answers = tried(policies, crd, zip(places, CASES, strict=True))
    different = [(case, *answer) for case, answer in zip(CASES, answers, strict=True) if not same(*answer)]
    assert not different, f"{len(different)} of {len(answers)}: {different[0]}"
    if crd is BUCKETS:
        assert [bool(said) for _, said in answers] == [case.expected != "free" for case in CASES]


def tried(policies: AppliedPolicies, crd: Crd, rows: Iterable[tuple[str, ProtectionCase]]) -> list[tuple[str, str]]:
    """Makes an object for each row, and has what the pure function and the policy say of it."""
    made = [(place, case, f"row{number}") for number, (place, case) in enumerate(rows)]
    created = policies.answers(
        Request("POST", crd.path(place), crd.body(name, annotations=case.own)) for place, case, name in made
    )
    assert {answer.status for answer in created} == {201}
    paths = [crd.path(place, name) for place, _, name in made]
    said = map(denial, policies.answers(Request("DELETE", path + DRY) for path in paths))
    return [
        (judged(crd, path, case.own, case.namespace), answer)
        for path, (_, case, _), answer in zip(paths, made, said, strict=True)
    ]


def same(expected: str, said: str) -> bool:
    """A character that does not print has no code in CEL."""
    return re.sub(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4})", "?", expected) == said


def test_a_cluster_scoped_object_is_judged_by_its_own_annotations(policies: AppliedPolicies) -> None:
    answers = tried(policies, VAULTS, [("", case) for case in CASES if not case.namespace])
    assert {bool(said) for _, said in answers} == {True, False}
    for expected, said in answers:
        assert same(expected, said)


def test_what_the_message_says_lifts_the_protection(policies: AppliedPolicies) -> None:
    namespace = policies.namespace({SPECIFIC[0]: "true", PLAIN[1]: "true"})
    path = policies.make(BUCKETS, namespace, {SPECIFIC[0]: "true", SPECIFIC[1]: "false", PLAIN[0]: "no"})
    name = path.rpartition("/")[2]
    where = f"{BUCKETS.resource} {name} -n {namespace}"

    def lift() -> str:
        command = policies.try_delete(path).split("; to lift it: kubectl annotate ")[1]
        policies.kubectl("annotate", *command.split())
        return command

    # What remains of the contradiction says that the object may be deleted.
    assert lift() == f"{where} {SPECIFIC[0]}-"
    assert not policies.try_delete(path)
    policies.annotate(path, {SPECIFIC[1]: None})
    assert lift() == f"{where} {PLAIN[0]}-"
    assert lift() == f"namespace {namespace} {SPECIFIC[0]}-"
    # A policy may see a Namespace as it was a moment ago.
    wait_until("the plain annotation of the Namespace decides", lambda: PLAIN[1] in policies.try_delete(path))
    assert lift() == f"namespace {namespace} {PLAIN[1]}-"
    wait_until("nothing protects it", lambda: not policies.try_delete(path))


@pytest.mark.parametrize(
    "arguments",
    [
        ("delete", BUCKETS.resource, "prod"),
        ("delete", BUCKETS.resource, "prod", "--force", "--grace-period=0"),
        ("delete", BUCKETS.resource, "prod", "--dry-run=server"),
        ("delete", BUCKETS.resource, "prod", "--cascade=foreground"),
        ("delete", BUCKETS.resource, "--all"),
        ("replace", "--force", "-f", "-"),
    ],
    ids=" ".join,
)
def test_kubectl_prints_the_denial_as_one_line(policies: AppliedPolicies, arguments: tuple[str, ...]) -> None:
    namespace = policies.namespace(PROTECTED)
    path = policies.make(BUCKETS, namespace, {}, name="prod")
    stdin = msgspec.json.encode(BUCKETS.body("prod")).decode() if arguments[-1] == "-" else ""
    with pytest.raises(KubectlFailed) as failed:
        policies.kubectl(*arguments, "-n", namespace, stdin=stdin)
    said = [line for line in str(failed.value).splitlines() if "forbidden" in line]
    assert len(said) == 1, failed.value
    assert said[0].endswith(f'{BUCKETS.resource} "prod" {of_policy(judged(BUCKETS, path, {}, PROTECTED))}')
    assert "Forbidden" in said[0]


def test_a_deletecollection_stops_at_a_protected_object_and_names_it(policies: AppliedPolicies) -> None:
    namespace = policies.namespace()
    path = policies.make(BUCKETS, namespace, PROTECTED, name="prod")
    policies.make(BUCKETS, namespace, {}, name="aaa")
    assert denial(policies.kube.request("DELETE", BUCKETS.path(namespace))) == judged(BUCKETS, path, PROTECTED, {})
    assert policies.kube.get(path) is not None


def test_a_second_delete_of_an_object_that_is_being_deleted_is_judged_as_the_first(policies: AppliedPolicies) -> None:
    path = policies.make(BUCKETS, policies.namespace(), {}, finalizers=[HELD])
    policies.kube.delete(path)
    policies.annotate(path, PROTECTED)
    assert policies.try_delete(path) == judged(BUCKETS, path, PROTECTED, {}) != ""
    # Removing the last finalizer is no DELETE: the object goes.
    policies.kube.patch(path, {"metadata": {"finalizers": None}})
    assert policies.kube.get(path) is None


def test_other_versions_of_the_resource_are_judged_alike(policies: AppliedPolicies) -> None:
    path = policies.make(BUCKETS, policies.namespace(PROTECTED), {})
    other = path.replace("/v1/", "/v1alpha1/")
    assert policies.kube.get(other) is not None
    assert policies.try_delete(other) == policies.try_delete(path) != ""


def test_the_api_server_counts_what_the_policy_judges(policies: AppliedPolicies) -> None:
    path = policies.make(BUCKETS, policies.namespace(PROTECTED), {})
    name = "apiserver_validating_admission_policy_check"

    def counted(metric: str) -> float:
        lines = str(policies.kube.request("GET", "/metrics").body).splitlines()
        of_denials = (
            line
            for line in lines
            if line.startswith(f"{metric}{{") and f'policy="{POLICY}"' in line and 'enforcement_action="deny"' in line
        )
        return sum(float(line.split()[-1]) for line in of_denials)

    before = counted(f"{name}_total")
    assert policies.try_delete(path)
    assert counted(f"{name}_total") > before
    assert counted(f"{name}_duration_seconds_count") > 0


def test_an_allowed_deletion_is_carried_out(policies: AppliedPolicies) -> None:
    path = policies.make(BUCKETS, policies.namespace(PROTECTED), {SPECIFIC[1]: "false"})
    policies.kube.delete(path)
    assert policies.kube.get(path) is None


def test_resources_that_are_not_protected_are_deleted_whatever_their_annotations_say(policies: AppliedPolicies) -> None:
    namespace = policies.namespace(PROTECTED)
    place = f"{NAMESPACES}/{namespace}/configmaps"
    policies.kube.create(place, {"metadata": {"name": "marked", "annotations": PROTECTED}})
    policies.kube.delete(f"{place}/marked")
    # The annotation of a Namespace protects what is in it; the webhook guards that.
    assert policies.kube.request("DELETE", f"{NAMESPACES}/{namespace}?dryRun=All").status == 200


def test_an_object_with_as_many_annotations_as_the_server_takes_is_judged(policies: AppliedPolicies) -> None:
    crowd = {f"example.com/{number}": "true" * 20 for number in range(2_400)}
    namespace = policies.namespace(PROTECTED)
    path = policies.make(BUCKETS, namespace, crowd)
    assert policies.try_delete(path) == judged(BUCKETS, path, crowd, PROTECTED) != ""
    long = {PLAIN[1]: "x" * 250_000}
    path = policies.make(BUCKETS, namespace, long)
    assert policies.try_delete(path) == judged(BUCKETS, path, long, PROTECTED) != ""


def test_the_garbage_collector_leaves_a_protected_object_and_its_other_children_go(policies: AppliedPolicies) -> None:
    namespace = policies.namespace()
    place = f"{NAMESPACES}/{namespace}/configmaps"
    owner = policies.kube.create(place, {"metadata": {"name": "owner"}})["metadata"]
    references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}]
    kept = policies.make(BUCKETS, namespace, PROTECTED, ownerReferences=references)
    free = policies.make(BUCKETS, namespace, {}, ownerReferences=references)
    policies.kube.delete(f"{place}/owner")
    wait_until("the free child is gone", lambda: policies.kube.get(free) is None)
    assert "deletionTimestamp" not in policies.kube.get(kept)["metadata"]  # type: ignore[index]
    policies.annotate(kept, {PLAIN[0]: None})
    wait_until("the garbage collector tries again", lambda: policies.kube.get(kept) is None)


@pytest.fixture
def gone(policies: AppliedPolicies) -> Iterator[str]:
    """A Namespace whose finalizers were removed by hand while objects were in it: it is gone, they are not."""
    name = policies.namespace()
    policies.make(BUCKETS, name, {PLAIN[0]: "false"}, name="free", finalizers=[HELD])
    policies.make(BUCKETS, name, {}, name="silent", finalizers=[HELD])
    policies.make(BUCKETS, name, PROTECTED, name="protected")
    configmap = {"metadata": {"name": "other", "finalizers": [HELD]}}
    policies.kube.create(f"{NAMESPACES}/{name}/configmaps", configmap)
    policies.kube.delete(f"{NAMESPACES}/{name}")
    found = policies.kube.get(f"{NAMESPACES}/{name}")
    assert found is not None
    released = {"metadata": {"name": name}, "spec": {"finalizers": []}}
    assert policies.kube.request("PUT", f"{NAMESPACES}/{name}/finalize", released).status == 200
    wait_until("the Namespace is gone", lambda: policies.kube.get(f"{NAMESPACES}/{name}") is None)
    yield name
    for object_name in ("free", "silent"):
        policies.kube.patch(BUCKETS.path(name, object_name), {"metadata": {"finalizers": None}})
    policies.kube.patch(f"{NAMESPACES}/{name}/configmaps/other", {"metadata": {"finalizers": None}})


def test_nothing_in_a_namespace_that_is_gone_can_be_deleted_until_it_is_there_again(
    policies: AppliedPolicies, gone: str
) -> None:
    paths = [BUCKETS.path(gone, name) for name in ("free", "silent", "protected")]
    # The API server looks the Namespace up before it evaluates a policy, and finds none: for other kinds, too.
    for path in (*paths, f"{NAMESPACES}/{gone}/configmaps/other"):
        answer = policies.kube.request("DELETE", path)
        assert (answer.status, answer.body["message"]) == (404, f'namespaces "{gone}" not found')
        assert policies.kube.get(path) is not None
    policies.kube.create(NAMESPACES, {"metadata": {"name": gone}})
    wait_until("the policy sees the Namespace", lambda: policies.kube.request("DELETE", paths[0]).status == 200)
    assert [bool(policies.try_delete(path)) for path in paths] == [False, False, True]
