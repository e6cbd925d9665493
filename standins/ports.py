"""Free TCP ports for servers that are killed and restarted on the same port.
They are outside of the ephemeral range: a client that keeps connecting to a closed port inside it can connect to
itself, and the server then finds its port taken."""

import random
import socket
from pathlib import Path

_LOWEST = 15000
_HIGHEST = 32767


def free_ports(count: int) -> list[int]:
    """Distinct ports that were free a moment ago; binding one can still fail."""
    highest = min(_HIGHEST, _first_ephemeral() - 1)
    chosen: list[int] = []
    for port in random.sample(range(_LOWEST, highest + 1), highest - _LOWEST + 1):
        if len(chosen) == count:
            break
        if _is_free(port):
            chosen.append(port)
    return chosen


def _first_ephemeral() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _HIGHEST + 1


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
