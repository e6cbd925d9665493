"""The rules of the webhook on the real control plane. With failure policy Fail and nothing that answers, a deletion
about which the API server asks fails: so it shows what is asked about and what never is."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest

from service.admission.manifests import protection_manifests
from service.admission.names import (
    CONFIGURATION,
    DEFINITIONS_WEBHOOK,
    NAMESPACES_WEBHOOK,
    OBJECTS_WEBHOOK,
)
from service.settings import Settings, WatchSettings
from service.settings.protection import ProtectionSettings, WebhookSettings
from tests.integration.applied_policies import (
    ADMISSION,
    BUCKETS,
    DRY,
    GADGETS,
    ITEMS,
    NAMESPACES,
    SETTINGS,
    VAULTS,
    AppliedPolicies,
    policies,
)
from tests.kube import Crd, wait_until
from tests.protection_cases import PLAIN

__all__ = ["policies"]

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("plane")]

COVERED: Final = {"knell.test/covered": "yes"}
UNREACHABLE: Final = "https://127.0.0.1:1"
CONFIGURATIONS: Final = f"{ADMISSION}/validatingwebhookconfigurations"
SYSTEM: Final = f"{NAMESPACES}/kube-system"
PLACES: Final = {
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
    "ValidatingWebhookConfiguration": CONFIGURATIONS,
}


def settings(home: str, **webhook: Any) -> Settings:
    made = WebhookSettings(enabled=True, **webhook)
    protection = ProtectionSettings(groups=SETTINGS.protection.groups, restrict_marks=True, webhook=made)
    return msgspec.structs.replace(SETTINGS, watch=WatchSettings(namespace=home), protection=protection)


class Asked:
    """Which webhook the API server asks about a deletion."""

    def __init__(self, policies: AppliedPolicies) -> None:
        self._kube = policies.kube
        self.home = policies.namespace()
        self.covered = policies.namespace()
        self.other = policies.namespace()
        for path in (SYSTEM, *(f"{NAMESPACES}/{name}" for name in (self.home, self.covered))):
            self._kube.patch(path, {"metadata": {"labels": COVERED}})

    def about(self, path: str) -> str:
        """Its name; empty if none is asked. A dry run asks like a real request."""
        answer = self._kube.request("DELETE", path + DRY)
        if answer.status != 500:
            return ""
        said = str(answer.body["message"])
        assert f"{UNREACHABLE}/protection?timeout=2s" in said, said
        return said.partition('failed calling webhook "')[2].partition('"')[0]


@pytest.fixture(scope="module")
def asked(policies: AppliedPolicies) -> Iterator[Asked]:
    made = Asked(policies)
    selector = ", ".join(f"{name}={value}" for name, value in COVERED.items())
    chosen = settings(made.home, url=UNREACHABLE, objects=True, namespaces=selector, timeout=timedelta(seconds=2))
    policies.kube.create(CONFIGURATIONS, protection_manifests(chosen, "here")[-1])
    wait_until("the configuration is effective", lambda: made.about(f"{NAMESPACES}/{made.covered}") != "")
    yield made
    policies.kube.delete(f"{CONFIGURATIONS}/{CONFIGURATION}")
    wait_until("it is without effect", lambda: made.about(f"{NAMESPACES}/{made.covered}") == "")
    policies.kube.patch(SYSTEM, {"metadata": {"labels": dict.fromkeys(COVERED)}})


def test_it_is_asked_about_namespaces_that_the_selector_covers(asked: Asked) -> None:
    assert asked.about(f"{NAMESPACES}/{asked.covered}") == NAMESPACES_WEBHOOK
    assert asked.about(f"{NAMESPACES}/{asked.other}") == ""


def test_it_is_never_asked_about_its_own_namespace_and_the_control_plane_and_what_is_in_them(
    policies: AppliedPolicies, asked: Asked
) -> None:
    assert asked.about(f"{NAMESPACES}/{asked.home}") == ""
    assert asked.about(SYSTEM) == ""
    for namespace in (asked.home, "kube-system"):
        path = policies.make(ITEMS, namespace, {})
        assert asked.about(path) == ""
        policies.kube.delete(path)


def test_it_is_asked_about_definitions_of_protected_resources_alone(policies: AppliedPolicies, asked: Asked) -> None:
    for crd in (BUCKETS, VAULTS, GADGETS, ITEMS):
        assert asked.about(crd.own_path) == DEFINITIONS_WEBHOOK
    other = Crd(group=GADGETS.group, plural="others")
    policies.kube.install(other)
    assert asked.about(other.own_path) == ""
    policies.kube.delete(other.own_path)


def test_it_is_asked_about_protected_objects_also_about_cluster_scoped_ones(
    policies: AppliedPolicies, asked: Asked
) -> None:
    for crd in (BUCKETS, GADGETS, ITEMS):
        assert asked.about(policies.make(crd, asked.covered, {})) == OBJECTS_WEBHOOK
        assert asked.about(policies.make(crd, asked.other, {})) == ""
    assert asked.about(policies.make(VAULTS, "", {})) == OBJECTS_WEBHOOK
    place = f"{NAMESPACES}/{asked.covered}/configmaps"
    policies.kube.create(place, {"metadata": {"name": "other"}})
    assert asked.about(f"{place}/other") == ""


def test_the_policy_denies_what_is_protected_before_the_webhook_is_asked(
    policies: AppliedPolicies, asked: Asked
) -> None:
    path = policies.make(BUCKETS, asked.covered, {PLAIN[0]: "true"})
    assert "is protected from deletion" in policies.try_delete(path)


@pytest.mark.usefixtures("asked")
def test_configuration_and_policies_can_be_deleted_while_it_does_not_answer(
    asked: Asked, policies: AppliedPolicies
) -> None:
    for place in PLACES.values():
        answer = policies.kube.request("DELETE", f"{place}/{CONFIGURATION}{DRY}")
        assert answer.status == 200, answer


@pytest.mark.parametrize("mode", ["self-made", "cert-manager", "secret"])
def test_the_server_accepts_what_is_applied(policies: AppliedPolicies, mode: str) -> None:
    home = policies.namespace()
    made = protection_manifests(settings(home, certificate=mode, objects=True), "here")
    # Under other names, for these are there already; cert-manager is not.
    known = [
        {**one, "metadata": {**one["metadata"], "name": home}}
        for one in made
        if one["apiVersion"] != "cert-manager.io/v1"
    ]
    listed = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": known}).decode()
    said = policies.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=listed)
    assert len(said.splitlines()) == len(known) == 6
