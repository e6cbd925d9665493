"""Child processes that do not outlive their parent, however it ends.
On Linux the kernel kills them; elsewhere an orderly exit does."""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

# Run by a bare interpreter that then executes the server, so the pid stays the same. `preexec_fn` would need no
# interpreter, but runs Python between fork and exec, which is unsafe with threads. The parent may have died before
# the call of prctl, hence the check.
_DIE_WITH_PARENT: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""

# `standins` and `tests` are not installed: `python -m` finds them only below the clone's root.
ROOT: Final = Path(__file__).resolve().parents[1]

_running: "weakref.WeakSet[subprocess.Popen[bytes]]" = weakref.WeakSet()


def launch(
    command: Sequence[str | Path],
    *,
    directory: Path,
    output: Path,
    environment: Mapping[str, str] | None = None,
    inherited: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Starts a process that is killed when the calling thread ends: call it from a long-lived thread."""
    words = [str(word) for word in command]
    if sys.platform == "linux":
        words = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *words]
    with output.open("ab") as out, _interrupts_deferred() as interrupt:
        # A session of its own: Ctrl-C reaches only this process, which stops the server in order.
        process = subprocess.Popen(
            words,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=inherited,
        )
        _running.add(process)
    try:
        interrupt()
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def launch_module(
    module: str,
    arguments: Sequence[str | Path],
    *,
    output: Path,
    environment: Mapping[str, str] | None = None,
    inherited: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Starts `python -m module` of this clone, as `launch` does, in the current directory."""
    return launch(
        [sys.executable, "-m", module, *arguments],
        directory=Path.cwd(),
        output=output,
        environment=with_clone_path(os.environ if environment is None else environment),
        inherited=inherited,
    )


def with_clone_path(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the clone's root on PYTHONPATH."""
    rest = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": f"{ROOT}{os.pathsep}{rest}" if rest else str(ROOT)}


@contextlib.contextmanager
def _interrupts_deferred() -> Iterator[Callable[[], None]]:
    """Defers SIGINT while a process is started: it would otherwise leave a process behind. The yielded function raises
    the deferred interrupt."""
    came: list[tuple[int, FrameType | None]] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = signal.signal(signal.SIGINT, lambda *interrupt: came.append(interrupt))

    def interrupt() -> None:
        if came and callable(before):
            before(*came[0])

    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


@atexit.register
def _end_all() -> None:
    for process in list(_running):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
