"""Requests that a fault delays: for a time, or at a gate until a test opens it.
They have arrived, and nothing has been done for them yet."""

import asyncio
from fnmatch import fnmatchcase

from standins.azure.behaviour import AzureFault


class DelayedRequests:
    def __init__(self) -> None:
        self.names: list[str] = []
        self._gates: list[tuple[str, asyncio.Event]] = []

    async def delay(self, operation: str, fault: AzureFault) -> None:
        gate = asyncio.Event()
        if fault.what == "gate":
            self._gates.append((operation, gate))
        self.names.append(operation)
        try:
            if fault.what == "gate":
                await gate.wait()
            else:
                await asyncio.sleep(fault.seconds)
        finally:
            self.names.remove(operation)
            self._gates = [one for one in self._gates if one[1] is not gate]

    def open(self, operation: str = "*") -> int:
        """Opens the gate for those that wait now, and returns how many."""
        opened = [gate for name, gate in self._gates if fnmatchcase(name, operation)]
        for gate in opened:
            gate.set()
        return len(opened)
