"""TokenRequest: issues tokens of service accounts.
A token is valid until it expires or the service account is deleted."""

import msgspec

from standins.kubernetes_api import statuses
from standins.kubernetes_api.api_resources import ACCOUNTS
from standins.kubernetes_api.documents import Document, decode
from standins.kubernetes_api.state import ClusterState, key
from standins.kubernetes_api.statuses import Cause

_SHORTEST = 600
_USUAL = 3600


class _TokenRequestSpec(msgspec.Struct, rename="camel"):
    audiences: list[str] | None = None
    expiration_seconds: int | None = None


class _Request(msgspec.Struct):
    spec: _TokenRequestSpec = msgspec.field(default_factory=_TokenRequestSpec)


def issue(state: ClusterState, namespace: str, name: str, body: bytes) -> Document:
    """Raises StatusError."""
    account = decode(state.get(ACCOUNTS, namespace, name))
    try:
        asked = msgspec.json.decode(body, type=_Request) if body.strip() else _Request()
    except msgspec.DecodeError as error:
        raise statuses.bad_request(f"couldn't read the TokenRequest: {error}") from None
    seconds = asked.spec.expiration_seconds or _USUAL
    if seconds < _SHORTEST:
        message = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
        causes = [Cause("FieldValueInvalid", "spec.expirationSeconds", message)]
        raise statuses.invalid_kind("TokenRequest", "authentication.k8s.io", "", causes)
    token, until = state.authorizer.issue(key(ACCOUNTS, namespace, name), account["metadata"]["uid"], seconds)
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"audiences": asked.spec.audiences or ["https://kubernetes.default.svc"], "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": until},
    }
