"""Makes etcd forget its history, through the JSON gateway that every etcd serves beside gRPC.
It needs no etcdctl, which not everybody who has etcd has."""

import http.client
from typing import Any, Final

import msgspec

_ANY_KEY: Final = "a25lbGw="
"""`knell` in base64. It lies outside of /registry, so no API server ever looks at it."""


def answers(port: int) -> bool:
    try:
        return bool(_call(port, "/v3/kv/range", {"key": _ANY_KEY}))
    except (OSError, http.client.HTTPException):
        return False


def compact(port: int) -> int:
    """Forgets every revision before the current one, which is returned. It first writes something, so that every
    revision that anybody can have heard of is among those forgotten."""
    revision = int(_call(port, "/v3/kv/put", {"key": _ANY_KEY, "value": ""})["header"]["revision"])
    _call(port, "/v3/kv/compaction", {"revision": str(revision), "physical": True})
    return revision


def _call(port: int, path: str, body: dict[str, object]) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", path, msgspec.json.encode(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise http.client.HTTPException(f"etcd answered {response.status} to {path}: {text.decode()[:200]}")
        return msgspec.json.decode(text, type=dict[str, Any])
    finally:
        connection.close()
