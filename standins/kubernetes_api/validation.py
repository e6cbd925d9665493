"""Validation of every write, whatever its kind: names, finalizers, immutable fields.
Messages are those of the real server."""

import re
from typing import Final

from standins.kubernetes_api import statuses
from standins.kubernetes_api.api_resources import NAMESPACES, ApiResource
from standins.kubernetes_api.documents import Document
from standins.kubernetes_api.statuses import Cause

_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_QUALIFIED = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_RULE: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_RBAC: Final = "rbac.authorization.k8s.io"


def identity(resource: ApiResource, version: str, document: Document) -> None:
    """The body must be of the kind and version that the path names. Raises StatusError (400)."""
    expected = resource.api_version(version)
    if not document.get("kind"):
        if resource.custom:
            raise statuses.bad_request(
                f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' is missing"
            )
        document["kind"] = resource.kind
    if not document.get("apiVersion"):
        if resource.custom:
            raise statuses.bad_request(
                f"the object provided is unrecognized (must be of type {resource.kind}): Object 'apiVersion' is missing"
            )
        document["apiVersion"] = expected
    if document["apiVersion"] != expected:
        raise statuses.bad_request(
            f"the API version in the data ({document['apiVersion']}) does not match the expected API version "
            f"({expected})"
        )
    if document["kind"] != resource.kind:
        given = document["kind"]
        if resource.custom:
            name = (document.get("metadata") or {}).get("name", "")
            message = f'Invalid value: "{given}": must be {resource.kind}'
            raise statuses.invalid_kind(given, resource.group, name, [Cause("FieldValueInvalid", "kind", message)])
        raise statuses.bad_request(f'{given} in version "{version}" cannot be handled as a {resource.kind}')


def name(resource: ApiResource, meta: Document) -> None:
    found = meta.get("name", "")
    if not found:
        raise statuses.invalid(
            resource,
            "",
            [Cause("FieldValueRequired", "metadata.name", "Required value: name or generateName is required")],
        )
    is_label = resource == NAMESPACES
    if resource.group == _RBAC:
        return
    pattern, rule, longest = (_LABEL, _LABEL_RULE, 63) if is_label else (_SUBDOMAIN, _SUBDOMAIN_RULE, 253)
    if len(found) > longest:
        rule = f"must be no more than {longest} characters"
    if len(found) > longest or not pattern.match(found):
        message = f'Invalid value: "{found}": {rule}'
        raise statuses.invalid(resource, found, [Cause("FieldValueInvalid", "metadata.name", message)])


def finalizers(resource: ApiResource, meta: Document) -> None:
    for index, each in enumerate(meta.get("finalizers", ())):
        if not resource.custom and "/" not in each and each not in _STANDARD_FINALIZERS:
            message = f'Invalid value: "{each}": name is neither a standard finalizer name nor is it fully qualified'
            raise statuses.invalid(
                resource, meta["name"], [Cause("FieldValueInvalid", f"metadata.finalizers[{index}]", message)]
            )
        if not _QUALIFIED.match(each):
            message = f'Invalid value: "{each}": {_QUALIFIED_RULE}'
            raise statuses.invalid(resource, meta["name"], [Cause("FieldValueInvalid", "metadata.finalizers", message)])


def no_new_finalizers(resource: ApiResource, old: Document, new: Document) -> None:
    """An object that is being deleted can only lose finalizers."""
    if "deletionTimestamp" not in old:
        return
    added = [each for each in new.get("finalizers", ()) if each not in old.get("finalizers", ())]
    if added:
        listed = ", ".join(f'"{each}"' for each in sorted(added))
        message = (
            "Forbidden: no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{listed}}}"
        )
        raise statuses.invalid(resource, new["name"], [Cause("FieldValueForbidden", "metadata.finalizers", message)])


def unchanged(resource: ApiResource, old: Document, new: Document) -> None:
    """Fills in system fields that the client omitted and refuses changed ones."""
    errors = []
    if "creationTimestamp" in old:
        new["creationTimestamp"] = old["creationTimestamp"]
    if "deletionTimestamp" in new and "deletionTimestamp" not in old:
        message = f'Invalid value: "{new["deletionTimestamp"]}": field is immutable'
        errors.append(Cause("FieldValueInvalid", "metadata.deletionTimestamp", message))
    for field in ("name", "namespace", "uid"):
        if field not in new and field in old:
            new[field] = old[field]
        if new.get(field) != old.get(field):
            message = f'Invalid value: "{new.get(field)}": field is immutable'
            errors.append(Cause("FieldValueInvalid", f"metadata.{field}", message))
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        new.pop(field, None)
        if field in old:
            new[field] = old[field]
    if errors:
        raise statuses.invalid(resource, old["name"], errors)
