"""Manifests of protection at the door for `kubectl apply`: the admission policies and, where the webhook is enabled,
its configuration, its Service and what cert-manager needs.

No webhook may keep its own pods or the control plane from being repaired: all are asked about DELETE alone, never about
the Namespaces `watch.namespace` and `kube-system` or what is in them, and about CRDs only where protected resources are
defined.
"""

import ipaddress
from typing import Any, Final

from service.admission.names import (
    CONFIGURATION,
    DEFINITIONS_WEBHOOK,
    LABELS,
    NAMESPACES_WEBHOOK,
    OBJECTS_WEBHOOK,
    PATH,
    WEBHOOK_LABEL,
)
from service.admission.policies import is_protected, policy_manifests, protected_request
from service.admission.protected_resources import ProtectedResources
from service.policy.selectors import LabelSelector, parse_selector
from service.settings import Settings
from service.settings.protection import WebhookSettings

_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The API server gives it to every Namespace."""
_CONTROL_PLANE: Final = "kube-system"
_HTTPS: Final = 443
_CA_LIFETIME: Final = "87600h"
"""Ten years: only the certificate is replaced often, and who trusts the CA need not change for that."""


def protection_manifests(settings: Settings, cluster: str) -> list[dict[str, Any]]:
    protection = settings.protection
    made = policy_manifests(
        ProtectedResources(settings, cluster),
        restrict_marks=protection.restrict_marks,
        deletions=protection.policy,
    )
    if not protection.webhook.enabled:
        return made
    if not protection.webhook.url:
        made.append(_service(settings))
    if protection.webhook.certificate == "cert-manager":
        made += _certificates(settings)
    # Last: from then on the API server asks the webhook.
    return [*made, webhook_configuration(settings, cluster)]


def webhook_configuration(settings: Settings, cluster: str | None = None) -> dict[str, Any]:
    """Without a caBundle: Knell itself fills it in, or cert-manager does."""
    webhook = settings.protection.webhook
    protected = ProtectedResources(settings, cluster or settings.protection.cluster or next(iter(settings.clusters)))
    definitions = is_protected(protected, "oldObject.spec.group", "oldObject.metadata.name")
    made = [
        _webhook(settings, NAMESPACES_WEBHOOK, _rule("", ["v1"], "namespaces", "Cluster")),
        _webhook(
            settings,
            DEFINITIONS_WEBHOOK,
            _rule("apiextensions.k8s.io", ["*"], "customresourcedefinitions", "Cluster"),
            definitions,
        ),
    ]
    if webhook.objects:
        made.append(_webhook(settings, OBJECTS_WEBHOOK, _rule("*", ["*"], "*", "*"), protected_request(protected)))
    metadata: dict[str, Any] = {"name": CONFIGURATION, "labels": LABELS}
    if webhook.certificate == "cert-manager":
        injected = f"{settings.watch.namespace}/{webhook.service}"
        metadata["annotations"] = {"cert-manager.io/inject-ca-from": injected}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": metadata,
        "webhooks": made,
    }


def _webhook(settings: Settings, name: str, rule: dict[str, Any], condition: str = "") -> dict[str, Any]:
    webhook = settings.protection.webhook
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": _client_config(webhook, settings.watch.namespace),
        "rules": [rule],
        # Exact would let another version of the same resource through.
        "matchPolicy": "Equivalent",
        # It never exempts cluster-scoped objects, except Namespaces themselves.
        "namespaceSelector": _covered_namespaces(settings),
        **({"matchConditions": [{"name": "protected-resource", "expression": condition}]} if condition else {}),
        "failurePolicy": webhook.failure_policy,
        "timeoutSeconds": int(webhook.timeout.total_seconds()),
        # A denial posts an Event.
        "sideEffects": "NoneOnDryRun",
    }


def _rule(group: str, versions: list[str], resource: str, scope: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": versions,
        "operations": ["DELETE"],
        "resources": [resource],
        "scope": scope,
    }


def _client_config(webhook: WebhookSettings, namespace: str) -> dict[str, Any]:
    if webhook.url:
        return {"url": webhook.url + PATH}
    return {"service": {"namespace": namespace, "name": webhook.service, "path": PATH, "port": _HTTPS}}


def _covered_namespaces(settings: Settings) -> dict[str, Any]:
    excluded = list(dict.fromkeys((_CONTROL_PLANE, settings.watch.namespace)))
    chosen = parse_selector(settings.protection.webhook.namespaces)
    return {"matchExpressions": [{"key": _NAME_LABEL, "operator": "NotIn", "values": excluded}, *_expressions(chosen)]}


def _expressions(selector: LabelSelector) -> list[dict[str, Any]]:
    """The API server reads them alike: an absent label satisfies NotIn."""
    return [
        {"key": one.key, "operator": "DoesNotExist" if one.negated else "Exists"}
        if one.values is None
        else {"key": one.key, "operator": "NotIn" if one.negated else "In", "values": sorted(one.values)}
        for one in selector.requirements
    ]


def _service(settings: Settings) -> dict[str, Any]:
    webhook = settings.protection.webhook
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(settings, webhook.service),
        "spec": {
            # Not all pods of Knell: nothing listens in those of workers, and each call that is sent there fails.
            "selector": {"app.kubernetes.io/name": LABELS["app.kubernetes.io/name"], **WEBHOOK_LABEL},
            "ports": [{"name": "https", "port": _HTTPS, "targetPort": webhook.port, "protocol": "TCP"}],
        },
    }


def _certificates(settings: Settings) -> list[dict[str, Any]]:
    """A CA of its own, which stays when the certificate is replaced: with a self-signed certificate each replacement
    would fail calls, until the configuration has the new one."""
    # Imported only here: other manifests need no cryptography.
    from service.admission.certificates import certificate_names

    name = settings.protection.webhook.service
    authority, root = f"{name}-ca", f"{name}-self-signed"
    hosts = certificate_names(settings.protection.webhook, settings.watch.namespace)
    served = {"ipAddresses" if _is_address(hosts[0]) else "dnsNames": list(hosts)}
    return [
        _certificate_object(settings, "Issuer", root, {"selfSigned": {}}),
        _certificate_object(
            settings,
            "Certificate",
            authority,
            {"isCA": True, "commonName": authority, "duration": _CA_LIFETIME, **_signed(authority, root)},
        ),
        _certificate_object(settings, "Issuer", authority, {"ca": {"secretName": authority}}),
        _certificate_object(
            settings, "Certificate", name, {**served, **_signed(settings.protection.webhook.secret, authority)}
        ),
    ]


def _signed(secret: str, issuer: str) -> dict[str, Any]:
    return {"secretName": secret, "issuerRef": {"kind": "Issuer", "name": issuer}}


def _certificate_object(settings: Settings, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": _metadata(settings, name), "spec": spec}


def _metadata(settings: Settings, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": settings.watch.namespace, "labels": LABELS}


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
