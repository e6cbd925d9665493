"""Protection at the door with a real API server that asks `knell webhook` over TLS: the answer to each way of deleting,
and what happens while replicas stop or none is there."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from service.admission.names import DEFINITIONS_WEBHOOK, NAMESPACES_WEBHOOK, OBJECTS_WEBHOOK
from standins.controlplane import ControlPlane
from tests.api_servers import need_real
from tests.kube import KubeResponse, wait_until
from tests.scenarios.protection_door import BUCKETS, MARK, TRUE, VAULTS, ProtectionDoor, protection_door

pytestmark = pytest.mark.long

NAMESPACES = "/api/v1/namespaces"
HELD = "knell.test/held"
LOADED = 200
PARALLEL = 16


@pytest.fixture(scope="module")
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProtectionDoor]:
    """For all tests of the module, one after the other."""
    need_real()
    plane: ControlPlane = request.getfixturevalue("real_api")
    with protection_door(plane, tmp_path_factory.mktemp("door")) as made:
        yield made


def denied(webhook: str, message: str) -> str:
    return f'admission webhook "{webhook}" denied the request: {message}'


def lifting(name: str, namespace: str, resource: str = BUCKETS.resource) -> str:
    return f"; to lift it: kubectl annotate {resource} {name} -n {namespace} {MARK}-"


def protected(namespace: str, name: str = "prod") -> str:
    which = f"bucket/{name} in Namespace {namespace}"
    why = f"annotation {MARK} of the object says 'true'"
    return f"{which} is protected from deletion: {why}{lifting(name, namespace)}"


# ---- what kubectl prints


def test_kubectl_prints_the_five_commonest_denials_as_one_line(door: ProtectionDoor) -> None:
    namespace, marked = door.namespace(), door.namespace(TRUE)
    door.bucket(namespace, "prod", TRUE)
    door.bucket(namespace, "typo", {MARK: "yes"})
    door.bucket(marked, "inside")
    refused = "Error from server (Forbidden): "
    own = refused + denied(OBJECTS_WEBHOOK, protected(namespace))
    assert door.kubectl("delete", BUCKETS.resource, "prod", "-n", namespace) == (1, "", f"{own}\n")
    outer = refused + denied(
        OBJECTS_WEBHOOK,
        f"bucket/inside in Namespace {marked} is protected from deletion: annotation {MARK} of its Namespace says "
        f"'true'; to lift it: kubectl annotate namespace {marked} {MARK}-",
    )
    assert door.kubectl("delete", BUCKETS.resource, "inside", "-n", marked) == (1, "", f"{outer}\n")
    invalid = refused + denied(
        OBJECTS_WEBHOOK,
        f"bucket/typo in Namespace {namespace} is protected from deletion: annotation {MARK} of the object has the "
        f"value 'yes'; allowed: true, false{lifting('typo', namespace)}",
    )
    assert door.kubectl("delete", BUCKETS.resource, "typo", "-n", namespace) == (1, "", f"{invalid}\n")
    around = refused + denied(
        NAMESPACES_WEBHOOK,
        f"namespace/{namespace} contains 2 protected objects: bucket.s3.services.k8s.aws/prod and "
        f"bucket.s3.services.k8s.aws/typo; to see what protects them: knell protection list -n {namespace}",
    )
    assert door.kubectl("delete", "namespace", namespace) == (1, "", f"{around}\n")
    door.create(VAULTS, "", "prod", TRUE)
    defined = refused + denied(
        DEFINITIONS_WEBHOOK,
        f"customresourcedefinition/{VAULTS.resource} has 1 protected object: vault/prod, which would be deleted with "
        "it; to see what protects them: knell protection list",
    )
    assert door.kubectl("delete", "crd", VAULTS.resource) == (1, "", f"{defined}\n")
    door.annotate(VAULTS.path("", "prod"), **{MARK: None})
    assert door.kubectl("delete", VAULTS.resource, "prod")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("delete", BUCKETS.resource, "prod", "--force", "--grace-period=0"),
        ("delete", BUCKETS.resource, "prod", "--now"),
        ("delete", BUCKETS.resource, "prod", "--cascade=orphan"),
        ("delete", BUCKETS.resource, "--all"),
        ("delete", BUCKETS.resource, "prod", "--dry-run=server"),
        ("replace", "--force", "-f", "-"),
    ],
    ids=lambda words: " ".join(words),
)
def test_no_option_of_kubectl_is_a_way_round(door: ProtectionDoor, words: tuple[str, ...]) -> None:
    namespace = door.namespace()
    path = door.bucket(namespace, "prod", TRUE)
    before: Any = door.kube.get(path)
    stdin = msgspec.json.encode(BUCKETS.body("prod")).decode() if words[-1] == "-" else ""
    code, _, said = door.kubectl(*words, "-n", namespace, stdin=stdin)
    assert code == 1
    assert denied(OBJECTS_WEBHOOK, protected(namespace)) in said
    assert door.kube.get(path) == before


def test_a_dry_run_is_denied_without_an_event(door: ProtectionDoor) -> None:
    namespace = door.namespace()
    rehearsed, tried = door.bucket(namespace, "rehearsed", TRUE), door.bucket(namespace, "tried", TRUE)
    assert door.delete(rehearsed, "?dryRun=All").reason == "Forbidden"
    assert door.delete(tried).reason == "Forbidden"
    assert door.until_event(namespace, "tried", "DeletionDenied") == (
        f"admin was denied: {protected(namespace, 'tried')}"
    )
    assert door.events(namespace, "rehearsed") == {}


def test_what_is_lifted_or_not_protected_goes(door: ProtectionDoor) -> None:
    namespace = door.namespace(TRUE)
    path = door.bucket(namespace, "prod")
    assert door.delete(path).status == 403
    door.annotate(path, **{MARK: "false"})
    assert door.kubectl("delete", BUCKETS.resource, "prod", "-n", namespace)[0] == 0
    assert not door.exists(path)


def test_a_cluster_scoped_object_is_judged_by_its_own_annotations(door: ProtectionDoor) -> None:
    kept, free = door.create(VAULTS, "", "kept", TRUE), door.create(VAULTS, "", "free")
    assert door.delete(kept).body["message"] == denied(
        OBJECTS_WEBHOOK,
        f"vault/kept is protected from deletion: annotation {MARK} of the object says 'true'; to lift it: kubectl "
        f"annotate {VAULTS.resource} kept {MARK}-",
    )
    assert door.delete(free).status == 200
    door.annotate(kept, **{MARK: None})
    assert door.delete(kept).status == 200


def test_a_deletecollection_ends_at_the_protected_object_and_its_event_names_what_went(door: ProtectionDoor) -> None:
    namespace = door.namespace()
    for name in ("a", "b"):
        door.bucket(namespace, name)
    kept = door.bucket(namespace, "prod", TRUE)
    door.bucket(namespace, "z")
    answer = door.delete(BUCKETS.path(namespace))
    assert (answer.status, answer.body["message"]) == (403, denied(OBJECTS_WEBHOOK, protected(namespace)))
    assert door.until_event(namespace, "prod", "DeleteCollectionStopped") == (
        f"a deletecollection of {BUCKETS.resource} by admin ended at this object; deletions that were allowed before "
        "it: a, b"
    )
    assert door.exists(kept)
    assert [door.exists(BUCKETS.path(namespace, name)) for name in ("a", "b", "z")] == [False, False, True]


# ---- the garbage collector, and deletions that are under way


def _owned(door: ProtectionDoor, namespace: str, **more: object) -> tuple[str, str]:
    """Paths of a ConfigMap and of a protected bucket that it owns."""
    maps = f"{NAMESPACES}/{namespace}/configmaps"
    owner = door.kube.create(maps, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], **more}
    return f"{maps}/owner", door.bucket(namespace, "prod", TRUE, ownerReferences=[reference])


def test_the_garbage_collector_leaves_a_protected_child_behind(door: ProtectionDoor) -> None:
    namespace = door.namespace()
    owner, child = _owned(door, namespace)
    assert door.delete(owner, "?propagationPolicy=Background").status == 200
    assert not door.exists(owner)
    door.until_event(namespace, "prod", "DeletionDenied")
    found: Any = door.kube.get(child)
    assert "deletionTimestamp" not in found["metadata"]
    door.annotate(child, **{MARK: None})
    door.until_gone(child)


def test_in_the_foreground_the_owner_stays_with_its_protected_child(door: ProtectionDoor) -> None:
    namespace = door.namespace()
    owner, child = _owned(door, namespace, blockOwnerDeletion=True)
    assert door.delete(owner, "?propagationPolicy=Foreground").status in (200, 202)
    door.until_event(namespace, "prod", "DeletionDenied")
    found: Any = door.kube.get(owner)
    assert found["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert door.exists(child)
    door.annotate(child, **{MARK: None})
    door.until_gone(owner)
    assert not door.exists(child)


def test_a_second_delete_of_an_object_that_is_being_deleted_is_judged_anew(door: ProtectionDoor) -> None:
    namespace = door.namespace()
    path = door.bucket(namespace, "prod", finalizers=[HELD])
    assert door.delete(path).status == 200
    door.annotate(path, **TRUE)
    assert door.delete(path).body["message"] == denied(OBJECTS_WEBHOOK, protected(namespace))
    # The removal of its last finalizer is no DELETE.
    door.kube.patch(path, {"metadata": {"finalizers": []}})
    door.until_gone(path)


def test_a_mark_that_is_set_while_the_request_is_on_its_way_is_respected(door: ProtectionDoor) -> None:
    namespace = door.namespace()
    path = door.bucket(namespace, "prod")
    door.relay.hold_answers()
    with ThreadPoolExecutor(1) as pool:
        try:
            asked = pool.submit(door.delete, path)
            assert door.relay.held.wait(30)
            door.annotate(path, **TRUE)
        finally:
            door.relay.release_answers()
        answer = asked.result()
    assert (answer.status, answer.body["message"]) == (403, denied(OBJECTS_WEBHOOK, protected(namespace)))
    assert door.exists(path)


def test_a_namespace_that_was_just_made_is_known_at_once(door: ProtectionDoor) -> None:
    for _ in range(20):
        namespace = door.namespace(TRUE)
        assert door.delete(door.bucket(namespace, "prod")).status == 403


# ---- Namespaces and CRDs


def test_a_namespace_goes_when_nothing_in_it_is_protected(door: ProtectionDoor) -> None:
    namespace = door.namespace(TRUE)
    path = f"{NAMESPACES}/{namespace}"
    door.bucket(namespace, "free", {MARK: "false"})
    kept = door.bucket(namespace, "prod")
    answer = door.delete(path)
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert " contains 1 protected object: bucket.s3.services.k8s.aws/prod; " in answer.body["message"]
    assert door.until_event("default", namespace, "DeletionDenied").startswith("admin was denied: namespace/")
    found: Any = door.kube.get(path)
    assert found["status"]["phase"] == "Active"
    door.annotate(kept, **{MARK: "false"})
    assert door.delete(path).status == 200
    door.until_gone(path)


def test_an_object_whose_namespace_was_removed_by_hand_stays(door: ProtectionDoor) -> None:
    namespace = door.namespace()
    path = f"{NAMESPACES}/{namespace}"
    child = door.bucket(namespace, "prod", finalizers=[HELD])
    assert door.delete(path).status == 200
    wait_until("its deletion has begun", lambda: "deletionTimestamp" in (door.kube.get(child) or {})["metadata"])
    door.annotate(child, **TRUE)
    door.kube.request("PUT", f"{path}/finalize", {"metadata": {"name": namespace}, "spec": {"finalizers": []}})
    door.until_gone(path)
    answer = door.delete(child)
    # The API server itself refuses, before it asks anybody.
    assert (answer.status, answer.body["message"]) == (404, f'namespaces "{namespace}" not found')
    assert door.exists(child)
    metadata = {"name": namespace, "labels": {"knell.test/door": ""}}
    door.kube.create(NAMESPACES, {"metadata": metadata})
    wait_until("it is denied again", lambda: door.delete(child).status == 403)
    door.annotate(child, **{MARK: None})
    door.kube.patch(child, {"metadata": {"finalizers": []}})
    door.until_gone(child)


def test_a_crd_of_protected_objects_is_denied_and_goes_without_them(door: ProtectionDoor) -> None:
    namespace = door.namespace(TRUE)
    # Of a kind that no other test has: API servers are shared.
    crd = type(BUCKETS)("rds.services.k8s.aws", "doors", called="Door")
    door.kube.install(crd)
    child = door.create(crd, namespace, "prod")
    answer = door.delete(crd.own_path)
    assert answer.body["message"] == denied(
        DEFINITIONS_WEBHOOK,
        f"customresourcedefinition/{crd.resource} has 1 protected object: door/prod in Namespace {namespace}, "
        "which would be deleted with it; to see what protects them: knell protection list",
    )
    assert "deletionTimestamp" not in (door.kube.get(child) or {})["metadata"]
    door.annotate(child, **{MARK: "false"})
    assert door.delete(crd.own_path).status == 200
    door.until_gone(crd.own_path)


def test_what_is_not_covered_is_never_asked_about(door: ProtectionDoor) -> None:
    other: Any = door.kube.create(NAMESPACES, {"metadata": {"generateName": "other-", "annotations": TRUE}})
    name = other["metadata"]["name"]
    assert door.delete(door.bucket(name, "prod")).status == 200
    assert door.delete(f"{NAMESPACES}/{name}").status == 200


# ---- replicas


def in_parallel(do: Callable[[str], KubeResponse], paths: list[str]) -> list[KubeResponse]:
    with ThreadPoolExecutor(PARALLEL) as pool:
        return list(pool.map(do, paths))


def test_one_of_two_replicas_stops_under_load_and_no_call_fails(door: ProtectionDoor) -> None:
    namespace = door.namespace()
    paths = [door.bucket(namespace, f"b{number:03}", TRUE if number % 2 else None) for number in range(LOADED)]
    first, second = door.replicas[-1], door.start()
    answered = 0

    def delete(path: str) -> KubeResponse:
        nonlocal answered
        answered += 1
        if answered == LOADED // 4:
            first.terminate()
        return door.delete(path)

    answers = in_parallel(delete, paths)
    assert [answer.status for answer in answers] == [200, 403] * (LOADED // 2)
    assert first.end() == 0
    door.relay.replicas.remove(first.port)
    # The last one alone still answers.
    assert {answer.status for answer in in_parallel(door.delete, paths[1::2])} == {403}
    assert second.process.number("knell_admission_requests_total") > 0
    assert second.process.number("knell_admission_denials_total") > 0
    assert second.process.number("knell_admission_seconds_count") > 0
    assert second.process.number("knell_admission_certificate_expires_seconds") > 0
    assert second.process.number("knell_admission_namespaces_cached") == 1


def test_one_of_two_replicas_is_killed_and_what_it_was_answering_is_denied(door: ProtectionDoor) -> None:
    namespace = door.namespace()
    paths = [door.bucket(namespace, f"b{number:03}", TRUE if number % 2 else None) for number in range(LOADED)]
    first, _ = door.replicas[-1], door.start()
    answered = 0

    def delete(path: str) -> KubeResponse:
        nonlocal answered
        answered += 1
        if answered == LOADED // 4:
            first.kill()
        return door.delete(path)

    answers = in_parallel(delete, paths)
    door.relay.replicas.remove(first.port)
    # API servers repeat no call that had begun.
    failed = [path for path, answer in zip(paths, answers, strict=True) if answer.status == 500]
    assert len(failed) <= PARALLEL
    assert {answer.status for answer in answers[::2]} <= {200, 500}
    assert {answer.status for answer in answers[1::2]} <= {403, 500}
    assert all(map(door.exists, failed))
    again = in_parallel(door.delete, failed)
    assert [answer.status for answer in again] == [403 if path in paths[1::2] else 200 for path in failed]
    assert [door.exists(path) for path in paths] == [False, True] * (LOADED // 2)


def test_without_a_replica_everything_it_covers_is_denied_or_with_ignore_allowed(door: ProtectionDoor) -> None:
    namespace = door.namespace()
    kept, free = door.bucket(namespace, "kept", TRUE), door.bucket(namespace, "free")
    replicas = list(door.relay.replicas)
    door.relay.replicas.clear()
    door.relay.cut()
    try:
        for path in (kept, free, f"{NAMESPACES}/{namespace}"):
            answer = door.delete(path)
            assert (answer.status, answer.reason) == (500, "InternalError")
            assert "failed calling webhook" in answer.body["message"]
            assert door.exists(path)
        # What it does not cover is not affected.
        assert door.delete(f"{NAMESPACES}/{namespace}/configmaps/kube-root-ca.crt").status == 200
        door.change(failurePolicy="Ignore")
        wait_until("nothing is asked for", lambda: door.delete(free, "?dryRun=All").status == 200)
        # As documented: nothing protects while the webhook is away.
        wait_until("it goes", lambda: door.delete(kept).status == 200)
        counted = str(door.kube.request("GET", "/metrics").body).splitlines()
        for metric, label in (
            ("rejection_count", 'error_type="calling_webhook_error"'),
            ("fail_open_count", ""),
            ("admission_duration_seconds_count", ""),
        ):
            begin = f"apiserver_admission_webhook_{metric}{{"
            assert any(
                line.startswith(begin) and f'name="{OBJECTS_WEBHOOK}"' in line and label in line for line in counted
            ), metric
    finally:
        door.change(failurePolicy="Fail")
        door.relay.replicas[:] = replicas
    wait_until("it is asked again", lambda: door.delete(free, "?dryRun=All").status == 200)
    probe = door.bucket(namespace, "probe", TRUE)
    wait_until("it denies again", lambda: door.delete(probe, "?dryRun=All").status == 403)
