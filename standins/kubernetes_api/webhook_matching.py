"""Validating webhooks of the stored configurations, and which of them are asked about a deletion.
Rules and selectors are matched as on the real server; matchConditions are not evaluated, for there is no CEL here."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from standins.kubernetes_api import statuses
from standins.kubernetes_api.api_resources import NAMESPACES, WEBHOOKS, ApiResource
from standins.kubernetes_api.documents import Document
from standins.kubernetes_api.state import ClusterState

_ANY: Final = "*"


class ServedSide(msgspec.Struct, frozen=True, rename="camel"):
    """Where a webhook is reached: at a URL, since there is no network of Services here."""

    url: str = ""
    ca_bundle: str = ""
    service: dict[str, Any] | None = None


class MatchingRule(msgspec.Struct, frozen=True, rename="camel"):
    operations: list[str] = []
    api_groups: list[str] = []
    api_versions: list[str] = []
    resources: list[str] = []
    scope: str = _ANY

    def covers(self, resource: ApiResource) -> bool:
        """In any version."""
        return (
            bool({_ANY, "DELETE"}.intersection(self.operations))
            and bool({_ANY, resource.group}.intersection(self.api_groups))
            and bool({_ANY, "*/*", resource.plural}.intersection(self.resources))
            and self.scope in (_ANY, "Namespaced" if resource.namespaced else "Cluster")
        )


class MatchRequirement(msgspec.Struct, frozen=True):
    """`key` is a label; one expression of a selector."""

    key: str
    operator: str
    values: list[str] = []

    def holds(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels
        raise statuses.internal(f"{self.operator!r} is not a valid label selector operator")


class StoredSelector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] = {}
    match_expressions: list[MatchRequirement] = []

    @property
    def everything(self) -> bool:
        return not self.match_labels and not self.match_expressions

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            one.holds(labels) for one in self.match_expressions
        )


class ValidatingWebhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    client_config: ServedSide
    rules: list[MatchingRule] = []
    failure_policy: str = "Fail"
    match_policy: str = "Equivalent"
    namespace_selector: StoredSelector = StoredSelector()
    object_selector: StoredSelector = StoredSelector()
    side_effects: str = "None"
    timeout_seconds: int = 10

    def version_for(self, resource: ApiResource, version: str) -> str | None:
        """The version in which it is asked about an object of this resource; None if its rules do not match."""
        rules = [rule for rule in self.rules if rule.covers(resource)]
        wanted = {name for rule in rules for name in rule.api_versions}
        if {_ANY, version} & wanted:
            return version
        if self.match_policy != "Equivalent":
            return None
        return next((one.name for one in resource.versions if one.served and one.name in wanted), None)


class _StoredConfiguration(msgspec.Struct, frozen=True):
    webhooks: list[ValidatingWebhook] = []


_configuration = msgspec.json.Decoder(_StoredConfiguration)


def matching_webhooks(
    state: ClusterState, resource: ApiResource, version: str, document: Document
) -> Iterator[tuple[ValidatingWebhook, str]]:
    """Each with the version in which it is asked. Raises StatusError (404) if a selector needs a missing Namespace."""
    if resource.group == WEBHOOKS.group:
        # So that a webhook that is down can always be taken away.
        return
    meta = document["metadata"]
    for raw in state.store.table(WEBHOOKS.stored_in).objects.values():
        for webhook in _configuration.decode(raw).webhooks:
            asked_in = webhook.version_for(resource, version)
            if (
                asked_in is not None
                and webhook.object_selector.matches(meta.get("labels", {}))
                and (webhook.namespace_selector.everything or _selected(state, resource, meta, webhook))
            ):
                yield webhook, asked_in


def _selected(state: ClusterState, resource: ApiResource, meta: Document, webhook: ValidatingWebhook) -> bool:
    """A selector of Namespaces exempts no cluster-scoped object but Namespaces."""
    if resource == NAMESPACES:
        return webhook.namespace_selector.matches(meta.get("labels", {}))
    if not resource.namespaced:
        return True
    found = state.namespace(meta["namespace"])
    if found is None:
        raise statuses.not_found(NAMESPACES, meta["namespace"])
    return webhook.namespace_selector.matches(found["metadata"].get("labels", {}))
