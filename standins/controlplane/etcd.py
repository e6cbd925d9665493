"""Maintenance of etcd: compaction through its JSON gateway, and snapshots with etcdctl and etcdutl.
Compaction needs no etcdctl, which is not everywhere beside etcd."""

import http.client
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from standins.controlplane.programs import NoControlPlane

_ANY_KEY: Final = "a25lbGw="
"""`knell` in base64. It is outside of /registry, so API servers ignore it."""


def answers(port: int) -> bool:
    try:
        return bool(_call(port, "/v3/kv/range", {"key": _ANY_KEY}))
    except (OSError, http.client.HTTPException):
        return False


def compact(port: int) -> int:
    """Compacts all revisions before the current one, which is returned. It first writes a key, so that every revision
    that a client can know is compacted."""
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


_WITHIN: Final = 60.0


def save_snapshot(etcdctl: Sequence[str], *, port: int, to: Path) -> None:
    _run([*etcdctl, f"--endpoints=http://127.0.0.1:{port}", "snapshot", "save", str(to)])


def restore_snapshot(etcdutl: Sequence[str], *, snapshot: Path, to: Path, bump_revision: int = 0) -> None:
    """Writes a new data folder, which must not exist, for a new etcd cluster of one member. With `bump_revision` no
    revision since the snapshot is assigned again, as in a safe restore of Kubernetes."""
    moved = [f"--bump-revision={bump_revision}", "--mark-compacted"] if bump_revision else []
    _run([*etcdutl, "snapshot", "restore", str(snapshot), f"--data-dir={to}", *moved])


def _run(command: Sequence[str]) -> None:
    # The caller's variables, such as ETCDCTL_ENDPOINTS, could name a real etcd.
    environment = {"PATH": os.environ.get("PATH", "")}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_WITHIN)
    except subprocess.TimeoutExpired:
        raise NoControlPlane(f"{' '.join(command)} did not end within {_WITHIN:g} s") from None
    if done.returncode != 0:
        raise NoControlPlane(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
