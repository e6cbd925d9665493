"""TokenRequest: a token for a service account, for a while.
It is honoured until it ends or the account is deleted, whichever comes first."""

import msgspec

from standins.api import statuses
from standins.api.documents import Document, decode
from standins.api.kinds import ACCOUNTS
from standins.api.statuses import Cause
from standins.api.world import World, key

_SHORTEST = 600
_USUAL = 3600


class _Spec(msgspec.Struct, rename="camel"):
    audiences: list[str] | None = None
    expiration_seconds: int | None = None


class _Request(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


def issue(world: World, namespace: str, name: str, body: bytes) -> Document:
    """Raises Refusal."""
    account = decode(world.get(ACCOUNTS, namespace, name))
    try:
        asked = msgspec.json.decode(body, type=_Request) if body.strip() else _Request()
    except msgspec.DecodeError as error:
        raise statuses.bad_request(f"couldn't read the TokenRequest: {error}") from None
    seconds = asked.spec.expiration_seconds or _USUAL
    if seconds < _SHORTEST:
        message = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
        causes = [Cause("FieldValueInvalid", "spec.expirationSeconds", message)]
        raise statuses.invalid_kind("TokenRequest", "authentication.k8s.io", "", causes)
    token, until = world.permits.issue(key(ACCOUNTS, namespace, name), account["metadata"]["uid"], seconds)
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"audiences": asked.spec.audiences or ["https://kubernetes.default.svc"], "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": until},
    }
