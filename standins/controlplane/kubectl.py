"""Calls of the real kubectl, and the kubeconfig that it and other clients read.
The caller's own configuration is not passed on: it could name a real cluster."""

import base64
import os
import subprocess
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from standins.controlplane.credentials import write_secret


class KubectlFailed(Exception):
    """The error output of kubectl, which contains the server's message."""


def run_kubectl(
    program: Sequence[str],
    arguments: Sequence[str],
    *,
    kubeconfig: Path,
    stdin: str = "",
    within: timedelta = timedelta(seconds=60),
) -> str:
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(kubeconfig.parent),
        "KUBECONFIG": str(kubeconfig),
        "KUBECACHEDIR": str(kubeconfig.parent / "kubectl-cache"),
    }
    try:
        done = subprocess.run(
            [*program, *arguments],
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=within.total_seconds(),
        )
    except subprocess.TimeoutExpired:
        raise KubectlFailed(f"kubectl {' '.join(arguments)} did not end within {within.total_seconds():g} s") from None
    if done.returncode != 0:
        raise KubectlFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def write_kubeconfig(path: Path, *, url: str, token: str, ca: Path | None) -> Path:
    """Writes one context, `local`, as JSON, which is YAML. Certificates are embedded, so the file can be moved."""
    cluster: dict[str, object] = {"server": url}
    if ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": cluster}],
        "users": [{"name": "local", "user": {"token": token}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
        "current-context": "local",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_secret(path, msgspec.json.format(msgspec.json.encode(config)).decode())
    return path
