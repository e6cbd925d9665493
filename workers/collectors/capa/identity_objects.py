"""Parser of the identity objects of Cluster API Provider AWS, and the check which namespaces may use them. Pure.
Whatever is in doubt is not allowed, since it could be another tenant's account."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from service.policy.selectors import Requirement
from service.sources.capa import CONTROLLER_IDENTITY, ROLE_IDENTITY, STATIC_IDENTITY
from workers.providers.aws.errors import NoAccess

GROUP: Final = "infrastructure.cluster.x-k8s.io"
RESOURCES: Final = {
    CONTROLLER_IDENTITY: f"awsclustercontrolleridentities.{GROUP}",
    ROLE_IDENTITY: f"awsclusterroleidentities.{GROUP}",
    STATIC_IDENTITY: f"awsclusterstaticidentities.{GROUP}",
}
SINGLETON: Final = "default"
"""The only name that a controller identity may have."""


class _Expression(msgspec.Struct, frozen=True):
    key: str
    operator: str
    values: list[str] | None = None


class _Selector(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = msgspec.field(default=None, name="matchLabels")
    expressions: list[_Expression] | None = msgspec.field(default=None, name="matchExpressions")


class AllowedNamespaces(msgspec.Struct, frozen=True):
    """`spec.allowedNamespaces`, if it is set."""

    names: list[str] | None = msgspec.field(default=None, name="list")
    selector: _Selector | None = None

    @property
    def everywhere(self) -> bool:
        """Only if neither list nor selector is set. An empty list, or empty labels, allows no namespace."""
        silent = self.selector is None or (self.selector.labels is None and self.selector.expressions is None)
        return self.names is None and silent

    def requirements(self) -> list[Requirement]:
        """Requirements on a Namespace's labels; none at all select no namespace. Raises ValueError if one is
        invalid."""
        if self.selector is None:
            return []
        wanted = [Requirement(key, False, frozenset({value})) for key, value in (self.selector.labels or {}).items()]
        return wanted + [_requirement(one) for one in self.selector.expressions or []]


class AssumedRole(msgspec.Struct, frozen=True):
    """The role to assume, and with which parameters."""

    arn: str
    session_name: str = ""
    external_id: str = ""
    duration: int = 0
    policy: str = ""
    policies: tuple[str, ...] = ()

    def __repr__(self) -> str:
        # An external id is a shared secret.
        return f"AssumedRole({self.arn!r})"

    @property
    def partition(self) -> str:
        return self.arn.split(":")[1]

    def arguments(self) -> dict[str, Any]:
        """Arguments of AssumeRole; what is not set is left to STS."""
        said: dict[str, Any] = {"RoleArn": self.arn, "RoleSessionName": self.session_name or "knell"}
        if self.external_id:
            said["ExternalId"] = self.external_id
        if self.duration:
            said["DurationSeconds"] = self.duration
        if self.policy:
            said["Policy"] = self.policy
        if self.policies:
            said["PolicyArns"] = [{"arn": one} for one in self.policies]
        return said


class CapaIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """One identity object as it was read. `label` is KIND/NAME; `source` names the identity that assumes the role,
    empty for the process's own; `secret` is the Secret with the keys of a static identity."""

    label: str
    uid: str
    version: str
    allowed: AllowedNamespaces | None = None
    role: AssumedRole | None = None
    source: str = ""
    secret: str = ""


class _SourceIdentityRef(msgspec.Struct):
    kind: str = ""
    name: str = ""


class _IdentitySpec(msgspec.Struct):
    allowed: AllowedNamespaces | None = msgspec.field(default=None, name="allowedNamespaces")
    role: str = msgspec.field(default="", name="roleARN")
    session_name: str = msgspec.field(default="", name="sessionName")
    external_id: str = msgspec.field(default="", name="externalID")
    duration: int = msgspec.field(default=0, name="durationSeconds")
    policy: str = msgspec.field(default="", name="inlinePolicy")
    policies: tuple[str, ...] | None = msgspec.field(default=None, name="policyARNs")
    source: _SourceIdentityRef | None = msgspec.field(default=None, name="sourceIdentityRef")
    secret: str = msgspec.field(default="", name="secretRef")


class _IdentityObject(msgspec.Struct):
    spec: _IdentitySpec | None = None


_objects: Final = msgspec.json.Decoder(_IdentityObject)


def kind_and_name(label: str) -> tuple[str, str]:
    """Raises NoAccess if it is no valid reference to an identity."""
    kind, _, name = label.partition("/")
    if kind not in RESOURCES:
        raise NoAccess(f"there is no kind of identity {kind!r}; spec.identityRef.kind is one of {', '.join(RESOURCES)}")
    if not name:
        raise NoAccess(f"the reference to an {kind} has no name; set spec.identityRef.name")
    if kind == CONTROLLER_IDENTITY and name != SINGLETON:
        raise NoAccess(f"an {kind} is always named {SINGLETON!r}, and {name!r} is asked for; correct identityRef")
    return kind, name


def parse_identity(label: str, uid: str, version: str, raw: msgspec.Raw | bytes) -> CapaIdentity:
    """Raises NoAccess for an invalid object."""
    try:
        spec = _objects.decode(raw).spec or _IdentitySpec()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoAccess(f"{label} can't be understood: {error}; correct it") from None
    kind, _ = kind_and_name(label)
    found = CapaIdentity(label=label, uid=uid, version=version, allowed=spec.allowed)
    if kind == ROLE_IDENTITY:
        source = "" if spec.source is None else f"{spec.source.kind}/{spec.source.name}"
        return msgspec.structs.replace(found, role=_role(label, spec), source=source)
    if kind == STATIC_IDENTITY:
        if not spec.secret:
            raise NoAccess(f"{label} names no Secret; set spec.secretRef")
        return msgspec.structs.replace(found, secret=spec.secret)
    return found


def permits(allowed: AllowedNamespaces | None, namespace: str, labels: Mapping[str, str] | None) -> bool:
    """Without `labels`, the Namespace has not been read yet, and only names count. Raises ValueError if the selector is
    invalid."""
    if allowed is None:
        return False
    if allowed.everywhere or namespace in (allowed.names or []):
        return True
    requirements = allowed.requirements()
    return labels is not None and bool(requirements) and all(one.matches(labels) for one in requirements)


def _role(label: str, spec: _IdentitySpec) -> AssumedRole:
    parts = spec.role.split(":", 5)
    if len(parts) != 6 or parts[0] != "arn" or parts[2] != "iam" or not parts[5].startswith("role/"):
        raise NoAccess(f"{label} has no role that could be assumed: spec.roleARN is {spec.role!r}")
    return AssumedRole(
        arn=spec.role, session_name=spec.session_name, external_id=spec.external_id, duration=spec.duration,
        policy=spec.policy, policies=spec.policies or (),
    )  # fmt: skip


def _requirement(one: _Expression) -> Requirement:
    match one.operator:
        case "In" | "NotIn" if one.values:
            return Requirement(one.key, one.operator == "NotIn", frozenset(one.values))
        case "Exists" | "DoesNotExist" if not one.values:
            return Requirement(one.key, one.operator == "DoesNotExist", None)
        case _:
            raise ValueError(
                f"{one.operator!r} with {len(one.values or [])} values on label {one.key!r} has no meaning"
            )
