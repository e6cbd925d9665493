"""Build of the control plane's binary into the user's cache: fetched, compiled, linked, tested, moved into place.
Go's caches for it (about 3 GB) are in a temporary folder, so that only the binary remains."""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from standins.controlplane.build_progress import BuildProgress
from standins.controlplane.go_module import GoModule

_ROOM: Final = 4 * 1024**3
_VERSION: Final = "k8s.io/component-base/version"
_TEMPORARY: Final = ".build-"


class BuildFailed(Exception):
    """The message names the step and what to do."""


def build(recipe: GoModule, go: Path, steps: BuildProgress) -> None:
    """Atomic: afterwards the binary is complete or does not exist."""
    target = recipe.binary
    try:
        target.parent.parent.mkdir(parents=True, exist_ok=True)
        with _build_lock(target.parent.parent), _build_folder(target.parent.parent) as folder:
            _build_in(folder, recipe, go, steps)
            target.parent.mkdir(exist_ok=True)
            (folder / "kube").replace(target)
            steps.begin("clearing up")
    except OSError as error:
        raise BuildFailed(
            f"{error.filename or target}: {error.strerror}; the binary belongs into the cache folder, "
            f"which XDG_CACHE_HOME may name"
        ) from None


def _build_in(folder: Path, recipe: GoModule, go: Path, steps: BuildProgress) -> None:
    free = shutil.disk_usage(folder).free
    if free < _ROOM:
        raise BuildFailed(
            f"the build needs {_ROOM >> 30} GB for a while, but {folder.parent} has {free / 2**30:.1f} GB left: "
            f"make room, or name another cache folder in XDG_CACHE_HOME"
        )
    toolchain = _Go(go, recipe.folder, folder)

    def fetched(line: str) -> None:
        if line.startswith("go: downloading "):
            steps.advance()

    steps.begin("modules fetched")
    packages = len(toolchain.run("list", "-deps", ".", on_line=fetched).split())

    def compiled(line: str) -> None:
        # The main package is named last, when all its imports have been compiled.
        if line == _main_package(recipe):
            steps.begin("linking")
        elif not line.startswith(("#", "\t", " ")):
            steps.advance()

    major, minor, _ = recipe.kubernetes.removeprefix("v").split(".")
    named = {"gitVersion": recipe.kubernetes, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s", "-w", *(f"-X {_VERSION}.{name}={value}" for name, value in named.items())])
    steps.begin("packages compiled", packages)
    toolchain.run("build", "-v", "-trimpath", "-ldflags", flags, "-o", str(folder / "kube"), ".", on_line=compiled)

    steps.begin("trying it")
    for arguments, version in (
        (("kubectl", "version", "--client"), recipe.kubernetes),
        (("etcd", "--version"), f"etcd Version: {recipe.etcd}"),
    ):
        tried = subprocess.run([folder / "kube", *arguments], capture_output=True, text=True, check=False)
        if tried.returncode != 0 or version not in tried.stdout:
            raise BuildFailed(
                f"what was built is not {arguments[0]} of {version}: {(tried.stderr or tried.stdout).strip()}"
            )


def _main_package(recipe: GoModule) -> str:
    return (recipe.folder / "go.mod").read_text().split()[1]


class _Go:
    """Go without the user's own settings for it, except for the module proxy."""

    def __init__(self, go: Path, module: Path, folder: Path) -> None:
        self._go, self._module = go, module
        for name in ("modules", "cache", "temporary"):
            (folder / name).mkdir()
        self._environment = {
            **os.environ,
            "GOMODCACHE": str(folder / "modules"),
            "GOCACHE": str(folder / "cache"),
            "GOTMPDIR": str(folder / "temporary"),
            # Writable, so that the folder can be removed like any other.
            "GOFLAGS": "-modcacherw -mod=readonly -buildvcs=false",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            "CGO_ENABLED": "0",
        }

    def run(self, *arguments: str, on_line: Callable[[str], None]) -> str:
        last: deque[str] = deque(maxlen=12)
        # Standard output goes to a file: a full pipe would block both processes.
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen(
                [self._go, *arguments],
                cwd=self._module,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
                # A process group of its own, so that its compilers can be killed with it.
                start_new_session=True,
            )
            try:
                for line in _lines(process):
                    last.append(line)
                    on_line(line)
                code = process.wait()
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
            if code != 0:
                raise BuildFailed(_diagnosis(arguments, last))
            out.seek(0)
            return out.read()


def _lines(process: "subprocess.Popen[str]") -> Iterator[str]:
    if process.stderr is not None:
        with process.stderr as stderr:
            for line in stderr:
                yield line.rstrip("\n")


def _diagnosis(arguments: Sequence[str], last: Sequence[str]) -> str:
    # Progress lines would hide the error.
    output = "\n".join(line for line in last if not line.startswith("go: downloading "))
    if any(
        word in output for word in ("dial tcp", "no such host", "i/o timeout", "proxyconnect", "connection refused")
    ):
        hint = "the Go module registry cannot be reached: check the network, or name a registry in GOPROXY"
    elif "checksum mismatch" in output or "SECURITY ERROR" in output:
        hint = "what was fetched is not what go.sum names: do not trust that registry; try another GOPROXY"
    elif "no space left" in output:
        hint = "the disk is full: make room, or name another cache folder in XDG_CACHE_HOME"
    elif "signal: killed" in output:
        hint = "a compiler was killed, most likely for want of memory (it takes about 3 GB): free some and run it again"
    else:
        hint = "see what Go says"
    return f"go {arguments[0]} failed; {hint}:\n{output}"


@contextmanager
def _build_lock(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BuildFailed("another build is under way for this user: wait until it is done") from None
        yield


@contextmanager
def _build_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside the target, so that the binary can be renamed into place. Called under the lock: the
    folders of killed builds are removed."""
    for remains in folder.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(remains, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=_TEMPORARY) as name:
        yield Path(name)
