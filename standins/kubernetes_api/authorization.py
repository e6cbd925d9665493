"""Authentication and authorization: static tokens with rules, service account tokens, and RBAC objects.
Members of system:masters are allowed everything."""

import base64
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from standins.kubernetes_api import statuses
from standins.kubernetes_api.api_resources import ACCOUNTS, BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES
from standins.kubernetes_api.documents import Document, decode, encode
from standins.kubernetes_api.paths import ResourcePath
from standins.kubernetes_api.store import ObjectStore

MASTERS: Final = "system:masters"
_AUTHENTICATED: Final = "system:authenticated"


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Allowed requests; `*` matches all. An empty group is the core group, a resource may be `plural/subresource`."""

    verbs: Sequence[str]
    groups: Sequence[str]
    resources: Sequence[str]
    namespaces: Sequence[str] = ("*",)
    names: Sequence[str] = ()

    def allows(self, verb: str, target: ResourcePath) -> bool:
        return (
            _among(verb, self.verbs)
            and _among(target.group, self.groups)
            and (_among(target.permission, self.resources) or f"*/{target.subresource}" in self.resources)
            and _among(target.namespace, self.namespaces)
            and (not self.names or target.name in self.names)
        )


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...]


def controller(name: str) -> User:
    """The user as which a controller of the cluster itself acts."""
    groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system", _AUTHENTICATED)
    return User(f"system:serviceaccount:kube-system:{name}", groups)


@dataclass(frozen=True, slots=True)
class _Account:
    """The service account of a token. The uid invalidates the token when the account is deleted and created again."""

    key: str
    uid: str
    until: float


class Authorizer:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._users: dict[str, User] = {}
        self._rules: dict[str, tuple[AccessRule, ...]] = {}
        self._accounts: dict[str, _Account] = {}

    def add(self, token: str, user: str, groups: Sequence[str], rules: Sequence[AccessRule]) -> None:
        self._users[token] = User(user, (*groups, _AUTHENTICATED))
        self._rules[user] = tuple(rules)

    def remove(self, token: str) -> None:
        self._users.pop(token, None)

    def issue(self, key: str, uid: str, seconds: int) -> tuple[str, str]:
        """Issues a token of a service account, with its expiry. It has the format of a JWT, since clients decode it."""
        until = time.time() + seconds
        namespace, _, name = key.partition("/")
        claims = {"exp": int(until), "sub": f"system:serviceaccount:{namespace}:{name}", "jti": secrets.token_hex(8)}
        parts = (encode({"alg": "none", "typ": "JWT"}), encode(claims), secrets.token_bytes(32))
        token = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
        self._accounts[token] = _Account(key, uid, until)
        return token, datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def authenticate(self, authorization: str) -> User:
        """Raises StatusError (401) for a token that is unknown, expired, or of a deleted account."""
        kind, _, token = authorization.partition(" ")
        token = token.strip()
        if kind.lower() != "bearer":
            raise statuses.unauthorized()
        if token in self._users:
            return self._users[token]
        account = self._accounts.get(token)
        if account is None or account.until < time.time():
            raise statuses.unauthorized()
        raw = self._store.table(ACCOUNTS.stored_in).objects.get(account.key)
        if raw is None or decode(raw)["metadata"]["uid"] != account.uid:
            raise statuses.unauthorized()
        namespace, _, name = account.key.partition("/")
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", _AUTHENTICATED)
        return User(f"system:serviceaccount:{namespace}:{name}", groups)

    def allowed(self, user: User, verb: str, target: ResourcePath) -> bool:
        if MASTERS in user.groups:
            return True
        return any(rule.allows(verb, target) for rule in self._rules_of(user, target.namespace))

    def require(self, user: User, verb: str, target: ResourcePath) -> None:
        """Raises StatusError (403)."""
        if self.allowed(user, verb, target):
            return
        where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        why = f'User "{user.name}" cannot {verb} resource "{target.permission}" in API group "{target.group}" {where}'
        raise statuses.forbidden(target.group, target.plural, target.name, why)

    def _rules_of(self, user: User, namespace: str) -> Iterator[AccessRule]:
        yield from self._rules.get(user.name, ())
        for raw in self._store.table(CLUSTER_BINDINGS.stored_in).objects.values():
            yield from self._bound(user, decode(raw), "")
        if namespace:
            for _, raw in self._store.table(BINDINGS.stored_in).within(namespace):
                yield from self._bound(user, decode(raw), namespace)

    def _bound(self, user: User, binding: Document, namespace: str) -> Iterator[AccessRule]:
        if not any(_is(user, subject, namespace) for subject in binding.get("subjects") or ()):
            return
        role = binding.get("roleRef") or {}
        if role.get("kind") == "Role":
            raw = self._store.table(ROLES.stored_in).objects.get(f"{namespace}/{role.get('name')}")
        else:
            raw = self._store.table(CLUSTER_ROLES.stored_in).objects.get(str(role.get("name")))
        for rule in (decode(raw).get("rules") or ()) if raw is not None else ():
            yield AccessRule(
                verbs=rule.get("verbs") or (),
                groups=rule.get("apiGroups") or (),
                resources=rule.get("resources") or (),
                names=rule.get("resourceNames") or (),
            )


def _is(user: User, subject: dict[str, Any], namespace: str) -> bool:
    match subject.get("kind"):
        case "User":
            return subject.get("name") == user.name
        case "Group":
            return subject.get("name") in user.groups
        case "ServiceAccount":
            there = subject.get("namespace") or namespace
            return user.name == f"system:serviceaccount:{there}:{subject.get('name')}"
    return False


def _among(word: str, allowed: Sequence[str]) -> bool:
    return "*" in allowed or word in allowed
