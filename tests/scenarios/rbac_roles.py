"""RBAC roles of the service for a scenario: all of them, or all but the rules for one kind."""

from typing import Any, Final

_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"


def path_of(item: Any, *, collection: bool = False) -> str:
    """Where an account, a role or a binding is, or is made."""
    kind, meta = item["kind"], item["metadata"]
    place = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    root = "/api/v1" if kind == "ServiceAccount" else _RBAC
    return f"{root}{place}/{kind.lower()}s" + ("" if collection else f"/{meta['name']}")


def without(item: Any, plural: str) -> Any:
    """The same role, but for everything about objects of one kind."""
    if "rules" not in item:
        return item
    rules = [
        {**rule, "resources": rest}
        for rule in item["rules"]
        if (rest := [one for one in rule["resources"] if one.partition("/")[0] != plural])
    ]
    return {**item, "rules": rules}
