"""Child processes that do not outlive the process that started them, however that one ends.
On Linux the kernel sees to it; elsewhere an orderly exit does."""

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

# Run by a bare interpreter that then becomes the server, so the pid stays the same. `preexec_fn` would spare
# the interpreter, but runs Python between fork and exec, which is unsafe as soon as there are threads. The
# parent may have died before the kernel was told: hence the second look.
_TIE_AND_BECOME: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""

_running: "weakref.WeakSet[subprocess.Popen[bytes]]" = weakref.WeakSet()


def launch(
    command: Sequence[str | Path],
    *,
    directory: Path,
    output: Path,
    environment: Mapping[str, str] | None = None,
    inherited: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Starts a process that is killed when the calling thread ends: call it from a thread that lives long."""
    words = [str(word) for word in command]
    if sys.platform == "linux":
        words = [sys.executable, "-I", "-S", "-c", _TIE_AND_BECOME, str(os.getpid()), *words]
    with output.open("ab") as out, _interrupts_kept() as interrupt:
        # A session of its own: an interrupt from the keyboard is for us; the server is stopped in order.
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


@contextlib.contextmanager
def _interrupts_kept() -> Iterator[Callable[[], None]]:
    """An interrupt in the middle of starting a process would leave one behind that nobody knows. What is given lets it
    have its effect afterwards."""
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
