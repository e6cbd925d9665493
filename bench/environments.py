"""Environments of the peers, made in the clone on first use and again when their lock file changed.

Each group of Python peers has one of its own, because their pins contradict each other; Node and Go keep
theirs alike.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
_BENCH: Final = ROOT / "bench"
PIP_INSTALL: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
_STAMP: Final = ".bench-lock"

Announce = Callable[[str], None]


class EnvironmentFailedError(Exception):
    """A peer's environment could not be made; the message has the tool's last words."""


def python_of(group: str) -> Path:
    return ROOT / f".venv-bench-{group}" / "bin" / "python"


def prepare_python(group: str, announce: Announce) -> None:
    lock = _BENCH / "requirements" / f"{group}.txt"
    home = ROOT / f".venv-bench-{group}"
    if _is_current(home, [lock]):
        return
    announce(f"installing {lock.relative_to(ROOT)} into {home.name}")
    if not python_of(group).exists():
        _run([sys.executable, "-m", "venv", "--clear", str(home)])
    _run(
        [str(python_of(group)), *PIP_INSTALL, "--require-hashes", "-r", str(lock)],
    )
    _mark_current(home, [lock])


def node_modules() -> Path:
    return ROOT / ".venv-bench-node" / "node_modules"


def prepare_node(announce: Announce) -> None:
    source = _BENCH / "peers" / "bullmq"
    lock = [source / "package.json", source / "package-lock.json"]
    home = node_modules().parent
    if _is_current(home, lock):
        return
    announce(f"npm ci into {home.name}")
    home.mkdir(exist_ok=True)
    for file in lock:
        shutil.copy(file, home / file.name)
    # Its packages carry what they need; none has to run code at installation.
    _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=home)
    _mark_current(home, lock)


def go_program() -> Path:
    return ROOT / ".venv-bench-go" / "asynq-peer"


def prepare_go(announce: Announce) -> None:
    source = _BENCH / "peers" / "asynq"
    inputs = [source / "go.mod", source / "go.sum", source / "main.go"]
    home = go_program().parent
    if _is_current(home, inputs):
        return
    announce(f"go build into {home.name}")
    home.mkdir(exist_ok=True)
    _run(["go", "build", "-o", str(go_program()), "."], cwd=source)
    _mark_current(home, inputs)


def locked_version(lock: str, package: str) -> str:
    """The version of a package as a lock file under `bench` names it: requirements, package.json or
    go.mod."""
    text = (_BENCH / lock).read_text()
    name = re.escape(package)
    found = re.search(rf'^{name}==(\S+)|"{name}": "([^"]+)"|^\s*(?:require )?{name} v(\S+)', text, re.MULTILINE)
    if found is None:
        raise LookupError(f"{package} is not in {lock}")
    return next(version for version in found.groups() if version)


def _is_current(home: Path, inputs: list[Path]) -> bool:
    stamp = home / _STAMP
    return stamp.exists() and stamp.read_text() == _fingerprint(inputs)


def _mark_current(home: Path, inputs: list[Path]) -> None:
    (home / _STAMP).write_text(_fingerprint(inputs))


def _fingerprint(inputs: list[Path]) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for file in inputs:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _run(command: list[str], cwd: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=cwd, env=os.environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()[-2000:]
        raise EnvironmentFailedError(f"{Path(command[0]).name} {command[1]} failed:\n{words}")
