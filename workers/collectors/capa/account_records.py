"""AWS account of an object's resources, from sources other than its VPC.
Once the VPC is deleted, only these show whether the right account was searched. Pure functions of objects."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from service.sources.capa import AWS_ACCOUNT, CONTROLLER_IDENTITY, ROLE_IDENTITY

_ACCOUNT: Final = re.compile(r"[0-9]{12}")


class AccountRecord(msgspec.Struct, frozen=True):
    """An account of the object's resources, and the field or annotation that names it."""

    account: str
    by: str


class IdentityReference(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""


class _AwsObjectMetadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _AwsObjectSpec(msgspec.Struct, frozen=True):
    identity: IdentityReference | None = msgspec.field(default=None, name="identityRef")


class _AwsObject(msgspec.Struct, frozen=True):
    metadata: _AwsObjectMetadata = _AwsObjectMetadata()
    spec: _AwsObjectSpec | None = None
    status: dict[str, Any] | None = None


_object: Final = msgspec.json.Decoder(_AwsObject)


def identity_name(reference: IdentityReference | None) -> str:
    """KIND/NAME, empty for the credentials of the process. A reference without a kind still counts as one: it must not
    mean the credentials of the process."""
    return "" if reference is None else f"{reference.kind}/{reference.name}"


def is_own(identity: str) -> bool:
    """Whether the identity stands for the credentials of the process (the default chain)."""
    return not identity or identity.startswith(f"{CONTROLLER_IDENTITY}/")


def is_account_known(records: Sequence[AccountRecord], identity: str, expected: str) -> bool:
    """Whether anything but the VPC names the account; `expected` is the setting for the credentials of the process. The
    ARN of a role names its account; static keys name none."""
    return bool(records) or (bool(expected) and is_own(identity)) or identity.startswith(f"{ROLE_IDENTITY}/")


def identity_without_account(raw: bytes | msgspec.Raw, expected: str) -> str | None:
    """The identity of an object whose account is unknown; None where the account is known, and `?` for an object that
    can't be decoded."""
    try:
        found = _object.decode(raw)
    except ValueError:
        return "?"
    identity = identity_name(found.spec.identity if found.spec is not None else None)
    records = list(account_records(found.metadata.annotations or {}, found.status or {}))
    return None if is_account_known(records, identity, expected) else identity


def account_records(annotations: Mapping[str, str], status: Mapping[str, Any]) -> Iterator[AccountRecord]:
    """ARNs outside of the status are ignored: keys and roles in the spec may be in other accounts."""
    if AWS_ACCOUNT in annotations:
        yield AccountRecord(annotations[AWS_ACCOUNT].strip(), f"annotation {AWS_ACCOUNT}")
    seen = set[str]()
    for where, arn in _arns(status, "status"):
        parts = arn.split(":", 5)
        account = parts[4] if len(parts) == 6 and parts[0] == "arn" else ""
        if _ACCOUNT.fullmatch(account) and account not in seen:
            seen.add(account)
            yield AccountRecord(account, where)


def _arns(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, str) and str(key).lower() == "arn":
                yield f"{where}.{key}", inner
            else:
                yield from _arns(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from _arns(inner, where)
