"""Which AWS account an object's resources are in, as far as anything but its VPC tells: once that is gone, nobody else
can say whether an account without it is the right one. Pure: texts of objects go in."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from service.contract.aws import AWS_ACCOUNT, CONTROLLER_IDENTITY, ROLE_IDENTITY

_ACCOUNT: Final = re.compile(r"[0-9]{12}")


class Record(msgspec.Struct, frozen=True):
    """An account, and who says that the object's resources are in it."""

    account: str
    by: str


class Reference(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True):
    identity: Reference | None = msgspec.field(default=None, name="identityRef")


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec | None = None
    status: dict[str, Any] | None = None


_object: Final = msgspec.json.Decoder(_Object)


def identity_in(reference: Reference | None) -> str:
    """KIND/NAME, empty for the process's own. A reference without a kind is one all the same: taken for none it would
    mean the process's own credentials."""
    return "" if reference is None else f"{reference.kind}/{reference.name}"


def is_own(identity: str) -> bool:
    """Whether the process's own credentials (the default chain) are meant."""
    return not identity or identity.startswith(f"{CONTROLLER_IDENTITY}/")


def is_told(records: Sequence[Record], identity: str, expected: str) -> bool:
    """Whether anything but the VPC tells the account; `expected` is what settings say of our own credentials. A role's
    ARN names it, and is what the caller then is in; of static keys nobody says anything."""
    return bool(records) or (bool(expected) and is_own(identity)) or identity.startswith(f"{ROLE_IDENTITY}/")


def untold(raw: bytes | msgspec.Raw, expected: str) -> str | None:
    """By which identity an object gets at an account that nothing tells; None where something does, and `?` for one
    that can't be read."""
    try:
        found = _object.decode(raw)
    except ValueError:
        return "?"
    identity = identity_in(found.spec.identity if found.spec is not None else None)
    records = list(records_in(found.metadata.annotations or {}, found.status or {}))
    return None if is_told(records, identity, expected) else identity


def records_in(annotations: Mapping[str, str], status: Mapping[str, Any]) -> Iterator[Record]:
    """What ARNs outside of the status are, is a person's business: keys and roles may be in other accounts."""
    if AWS_ACCOUNT in annotations:
        yield Record(annotations[AWS_ACCOUNT].strip(), f"annotation {AWS_ACCOUNT}")
    seen = set[str]()
    for where, arn in _arns(status, "status"):
        parts = arn.split(":", 5)
        account = parts[4] if len(parts) == 6 and parts[0] == "arn" else ""
        if _ACCOUNT.fullmatch(account) and account not in seen:
            seen.add(account)
            yield Record(account, where)


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
