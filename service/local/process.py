"""Child processes that do not outlive the process that started them, however that one ends.
On Linux the kernel sees to it; elsewhere an orderly exit does."""

import atexit
import contextlib
import os
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
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
) -> "subprocess.Popen[bytes]":
    """Starts a process that is killed when the calling thread ends: call it from a thread that lives long."""
    words = [str(word) for word in command]
    if sys.platform == "linux":
        words = [sys.executable, "-I", "-S", "-c", _TIE_AND_BECOME, str(os.getpid()), *words]
    with output.open("ab") as out:
        # A session of its own: an interrupt from the keyboard is for us; the server is stopped in order.
        process = subprocess.Popen(
            words,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    _running.add(process)
    return process


@atexit.register
def _end_all() -> None:
    for process in list(_running):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
