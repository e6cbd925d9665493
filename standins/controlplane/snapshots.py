"""Snapshots of etcd, saved by etcdctl and restored by etcdutl, as an operator backs up a cluster.
A failure raises NoControlPlane with what the program printed."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from standins.controlplane.programs import NoControlPlane

_WITHIN: Final = 60.0


def save_snapshot(etcdctl: Sequence[str], *, port: int, to: Path) -> None:
    _run([*etcdctl, f"--endpoints=http://127.0.0.1:{port}", "snapshot", "save", str(to)])


def restore_snapshot(etcdutl: Sequence[str], *, snapshot: Path, to: Path, bump_revision: int = 0) -> None:
    """Writes a new data folder, which must not exist. It belongs to a new etcd cluster of one member. With
    `bump_revision` no revision of the time since the snapshot comes back, as Kubernetes is restored safely."""
    moved = [f"--bump-revision={bump_revision}", "--mark-compacted"] if bump_revision else []
    _run([*etcdutl, "snapshot", "restore", str(snapshot), f"--data-dir={to}", *moved])


def _run(command: Sequence[str]) -> None:
    # Variables such as ETCDCTL_ENDPOINTS of the caller could name a real etcd.
    environment = {"PATH": os.environ.get("PATH", "")}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_WITHIN)
    except subprocess.TimeoutExpired:
        raise NoControlPlane(f"{' '.join(command)} did not end within {_WITHIN:g} s") from None
    if done.returncode != 0:
        raise NoControlPlane(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
