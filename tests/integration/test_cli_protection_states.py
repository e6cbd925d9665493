"""What `knell protection list`, `knell protection test` and `knell doctor` say of the door in each of its states."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from service.admission.manifests import protection_manifests
from service.admission.names import CONFIGURATION, NAMESPACES_WEBHOOK, OBJECTS_WEBHOOK, POLICY
from service.settings import load
from standins.ports import free_ports
from tests.integration.knell_process import KnellProcess, until
from tests.integration.protected_buckets import PLAIN, ProtectedBuckets, buckets
from tests.recording_proxy import RecordingProxy

__all__ = ["buckets"]

ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
PATHS: Final = {
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
    "ValidatingWebhookConfiguration": f"{ADMISSION}/validatingwebhookconfigurations",
    "Service": "",
}
POLICIES, BINDINGS, CONFIGURATIONS = list(PATHS.values())[:3]


@contextmanager
def applied(buckets: ProtectedBuckets, config: Path) -> Iterator[None]:
    """What `knell protection manifests` prints."""
    kube = buckets.widgets.api.kube
    made = [one for one in protection_manifests(load(config, {}), "here") if PATHS[one["kind"]]]
    try:
        for one in made:
            kube.create(PATHS[one["kind"]], one)
        yield
    finally:
        for one in made:
            kube.request("DELETE", f"{PATHS[one['kind']]}/{one['metadata']['name']}")
        until("deletions are admitted again", lambda: deletion(buckets).status == 200)


def deletion(buckets: ProtectedBuckets) -> Any:
    path = buckets.crd.path(buckets.namespace, "prod")
    return buckets.widgets.api.kube.request("DELETE", f"{path}?dryRun=All")


def until_denied(buckets: ProtectedBuckets) -> None:
    """Policies of the embedded API are stored, but not evaluated."""
    if buckets.widgets.api.kind == "real":
        until("the policy is effective", lambda: deletion(buckets).status == 403)


def door(buckets: ProtectedBuckets, config: Path) -> tuple[str, dict[str, dict[str, Any]]]:
    """The state of the door, and the results of its checks, which are those of `knell doctor`."""
    found = buckets.knell("protection", "list", "-o", "json", config=config)
    assert found.code == 0, found.err
    checks = {one["check"]: one for one in found.json["checks"]}
    examined = buckets.knell("doctor", "-o", "json", config=config).json["findings"]
    doctor = {one["check"]: one for one in examined if one["check"].startswith("protection")}
    # The doctor does not know which Namespaces have protected objects.
    assert {name: one["state"] for name, one in doctor.items()} == {name: one["state"] for name, one in checks.items()}
    return found.json["door"], checks


def tried(buckets: ProtectedBuckets, config: Path, what: str = "") -> Any:
    answer = buckets.knell(
        "protection", "test", what or f"{buckets.kind}/prod", "-n", buckets.namespace, "-o", "json", config=config
    )
    assert answer.code == 0, answer.err
    return answer.json


@pytest.fixture
def protected(buckets: ProtectedBuckets) -> ProtectedBuckets:
    buckets.create("prod", annotations={PLAIN: "true"})
    return buckets


def test_nothing_is_applied_and_the_settings_do_not_ask_for_it(protected: ProtectedBuckets) -> None:
    """An installation that does not use it is not nagged."""
    config = protected.widgets.config()
    state, checks = door(protected, config)
    assert (state, list(checks)) == ("open", ["protection policy"])
    assert checks["protection policy"]["state"] == "fine"
    assert "the API server does not" in checks["protection policy"]["what"]
    assert tried(protected, config)["denied"] is False
    listed = protected.knell("protection", "list")
    assert "The API server denies none of these deletions" in listed.out


def test_nothing_is_applied_although_the_settings_ask_for_it(protected: ProtectedBuckets) -> None:
    config = protected.widgets.config(protection={"groups": ["example.com"], "restrict_marks": True})
    state, checks = door(protected, config)
    assert state == "open"
    assert {name: one["state"] for name, one in checks.items()} == {
        "protection policy": "warning",
        "protection policy of annotations": "warning",
    }
    assert "knell protection manifests --cluster here | kubectl apply -f -" in checks["protection policy"]["mend"]


def test_the_policy_is_applied(protected: ProtectedBuckets) -> None:
    config = protected.widgets.config()
    with applied(protected, config):
        until_denied(protected)
        state, checks = door(protected, config)
        assert (state, checks["protection policy"]["state"]) == ("closed", "fine")
        assert "is bound and denies" in checks["protection policy"]["what"]
        answer = tried(protected, config)
        if protected.widgets.api.kind == "real":
            assert (answer["denied"], answer["by"]) == (True, POLICY)
            assert f"is protected from deletion: annotation {PLAIN} of the object says 'true'" in answer["answer"]
        assert protected.get("prod") is not None


def test_the_policies_of_all_settings_are_as_they_are_made(protected: ProtectedBuckets) -> None:
    """What the API server adds by itself is no difference."""
    config = protected.widgets.config(protection={"groups": ["example.com"], "restrict_marks": True})
    with applied(protected, config):
        until_denied(protected)
        state, checks = door(protected, config)
        assert (state, {one["state"] for one in checks.values()}) == ("closed", {"fine"}), checks


def test_the_binding_is_missing(protected: ProtectedBuckets) -> None:
    config = protected.widgets.config()
    with applied(protected, config):
        protected.widgets.api.kube.delete(f"{BINDINGS}/{POLICY}")
        until("nothing is denied", lambda: deletion(protected).status == 200)
        state, checks = door(protected, config)
        assert (state, checks["protection policy"]["state"]) == ("open", "wrong")
        assert "has no binding, so it denies nothing" in checks["protection policy"]["what"]
        assert protected.knell("doctor", config=config).code == 1
        assert tried(protected, config)["denied"] is False


def test_the_binding_only_warns(protected: ProtectedBuckets) -> None:
    config = protected.widgets.config()
    with applied(protected, config):
        body = {"spec": {"validationActions": ["Warn"]}}
        protected.widgets.api.kube.patch(f"{BINDINGS}/{POLICY}", body)
        state, checks = door(protected, config)
        assert (state, checks["protection policy"]["state"]) == ("open", "wrong")
        assert "does not say Deny" in checks["protection policy"]["what"]


@pytest.mark.parametrize("change", ["groups", "exemption"])
def test_the_policy_is_not_what_the_settings_make(protected: ProtectedBuckets, change: str) -> None:
    config = protected.widgets.config()
    with applied(protected, config):
        until_denied(protected)
        if change == "groups":
            config = protected.widgets.config("later", protection={"groups": ["example.com"]})
        else:
            exempt = {"matchConstraints": {"namespaceSelector": {"matchLabels": {"team": "a"}}}}
            protected.widgets.api.kube.patch(f"{POLICIES}/{POLICY}", {"spec": exempt})
        state, checks = door(protected, config)
        assert (state, checks["protection policy"]["state"]) == ("not as the settings say", "warning")
        what = checks["protection policy"]["what"]
        assert f"ValidatingAdmissionPolicy {POLICY} is not as the settings make it: spec.match" in what
        assert "kubectl apply -f -" in checks["protection policy"]["mend"]


# ---- the webhook


@contextmanager
def webhook(buckets: ProtectedBuckets, config: Path, *, run: bool = True) -> Iterator[KnellProcess]:
    process = buckets.widgets.start(config, "webhook")
    try:
        process.until_ready()
        yield process
    finally:
        process.process.kill()
        process.process.wait()


def webhook_config(buckets: ProtectedBuckets, protection: dict[str, Any] | None = None, **changes: Any) -> Path:
    """It covers one Namespace only, because other tests delete theirs on the same server."""
    (port,) = free_ports(1)
    settings = {
        "enabled": True,
        "host": "127.0.0.1",
        "port": port,
        "url": f"https://127.0.0.1:{port}",
        "namespaces": f"kubernetes.io/metadata.name={buckets.namespace}",
        **changes,
    }
    return buckets.widgets.config("webhook", protection={"webhook": settings, **(protection or {})})


def test_the_webhook_is_enabled_and_its_configuration_not_applied(protected: ProtectedBuckets) -> None:
    _, checks = door(protected, webhook_config(protected))
    assert checks["protection webhook"]["state"] == "warning"
    assert "its configuration is not applied" in checks["protection webhook"]["what"]
    assert "start Knell" in checks["protection webhook"]["mend"]


@pytest.mark.long
def test_the_webhook_answers_and_is_down_later(protected: ProtectedBuckets) -> None:
    config = webhook_config(protected)
    with applied(protected, config):
        with webhook(protected, config):
            until("it has filled in its CA", lambda: bundle(protected))
            namespace = f"namespace/{protected.namespace}"
            answer = until(
                "the API server reaches it",
                lambda: next(filter(denied_by_webhook, [tried(protected, config, namespace)]), None),
            )
            assert (answer["denied"], answer["by"]) == (True, NAMESPACES_WEBHOOK)
            assert f"{protected.kind}" in answer["answer"]
            _, checks = door(protected, config)
            states = {name: one["state"] for name, one in checks.items()}
            # Only the real API server answers access reviews.
            assert states.pop("protection lists") == ("fine" if protected.widgets.api.kind == "real" else "unknown")
            assert set(states.values()) == {"fine"}, checks
            assert "is valid until 20" in checks["protection certificate"]["what"]
            assert "is valid until 20" in checks["protection CA"]["what"]
            assert "it denied a dry run" in checks["protection webhook reachable"]["what"]
        answer = tried(protected, config, namespace)
        assert (answer["denied"], answer["by"]) == (True, NAMESPACES_WEBHOOK)
        assert answer["said"].startswith("denied, because the API server can't reach the webhook")
        state, checks = door(protected, config)
        assert (state, checks["protection webhook reachable"]["state"]) == ("closed", "wrong")
        assert "failed calling webhook" in checks["protection webhook reachable"]["what"]
    found: Any = protected.widgets.api.kube.get(f"/api/v1/namespaces/{protected.namespace}")
    assert "deletionTimestamp" not in found["metadata"]


@pytest.mark.long
def test_a_webhook_that_is_down_and_ignored_is_not_called_reachable(protected: ProtectedBuckets) -> None:
    config = webhook_config(protected, failure_policy="Ignore")
    with applied(protected, config):
        # As Knell has left it before it went down.
        with webhook(protected, config):
            until("it has filled in its CA", lambda: bundle(protected))
        listed = protected.knell("protection", "list", "-o", "json", config=config).json["checks"]
        (found,) = [one for one in listed if one["check"] == "protection webhook reachable"]
        assert found["state"] == "wrong"
        assert "which has protected objects" in found["what"]
        examined = protected.knell("doctor", "-o", "json", config=config).json["findings"]
        (unknown,) = [one for one in examined if one["check"] == "protection webhook reachable"]
        assert unknown["state"] == "unknown"


@pytest.mark.long
def test_the_webhook_alone_judges_objects(protected: ProtectedBuckets) -> None:
    """As the settings say, or because the policy was forgotten."""
    config = webhook_config(protected, {"policy": False}, objects=True)
    state, checks = door(protected, config)
    assert (state, checks["protection policy"]["state"]) == ("open", "fine")
    with applied(protected, config):
        with webhook(protected, config):
            until("it denies", lambda: denied_by_webhook(tried(protected, config)))
            answer = tried(protected, config)
            assert (answer["denied"], answer["by"]) == (True, OBJECTS_WEBHOOK)
            state, checks = door(protected, config)
            assert (state, checks["protection policy"]["state"]) == ("closed", "fine"), checks
            port = listening_port(config)
            forgotten = webhook_config(protected, objects=True, port=port, url=f"https://127.0.0.1:{port}")
            state, checks = door(protected, forgotten)
            assert (state, checks["protection policy"]["state"]) == ("not as the settings say", "warning")
        state, checks = door(protected, config)
        assert (state, checks["protection webhook reachable"]["state"]) == ("not known", "wrong")


def test_a_policy_that_keeps_denials_from_the_webhook_is_named(protected: ProtectedBuckets) -> None:
    config = webhook_config(protected, {"policy": False}, objects=True)
    with applied(protected, protected.widgets.config()):
        until_denied(protected)
        state, checks = door(protected, config)
        assert (state, checks["protection policy"]["state"]) == ("not as the settings say", "warning")
        assert checks["protection policy"]["mend"].startswith("kubectl delete validatingadmissionpolicybinding,")


def listening_port(config: Path) -> int:
    return load(config, {}).protection.webhook.port


class DeletionRecorder(RecordingProxy):
    """Keeps the query and the body of every DELETE, and passes on only those that can't delete."""

    def __init__(self, buckets: ProtectedBuckets) -> None:
        super().__init__(buckets.widgets.api)
        self.deletions: list[tuple[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "DELETE":
            self.deletions.append((request.query_string, await request.json()))
            assert self.deletions[-1][0] == "dryRun=All"
        return await super().answer(request)


async def test_every_deletion_that_is_tried_is_a_dry_run(protected: ProtectedBuckets) -> None:
    """The real server reads the options from the body, others from the query."""
    config = webhook_config(protected)
    with applied(protected, config):
        async with DeletionRecorder(protected) as proxy:
            here = {"kubeconfig": str(proxy.kubeconfig(protected.widgets.folder / "proxy")), "context": "local"}
            text = config.read_text().replace(str(protected.widgets.folder / "admin"), here["kubeconfig"])
            config.write_text(text)
            for words in (
                ("protection", "test", f"{protected.kind}/prod", "-n", protected.namespace),
                ("protection", "test", f"namespace/{protected.namespace}"),
                ("protection", "list"),
                ("doctor",),
            ):
                before = len(proxy.deletions)
                await asyncio.to_thread(protected.knell, *words, config=config)
                assert len(proxy.deletions) == before + 1, words
    assert {query for query, _ in proxy.deletions} == {"dryRun=All"}
    assert [body["dryRun"] for _, body in proxy.deletions] == [["All"]] * 4
    assert all(body["preconditions"]["uid"] for _, body in proxy.deletions)


def denied_by_webhook(answer: Any) -> bool:
    return "denied the request" in answer["answer"]


def bundle(buckets: ProtectedBuckets) -> bool:
    found: Any = buckets.widgets.api.kube.get(f"{CONFIGURATIONS}/{CONFIGURATION}")
    return all(one["clientConfig"].get("caBundle") for one in found["webhooks"])
