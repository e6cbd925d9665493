"""Requests that a fault has waiting: for a time, or at a gate until somebody opens it.
They have come, and nothing is done for them yet."""

import asyncio
from fnmatch import fnmatchcase

from standins.azure.behaviour import Fault


class Waiting:
    def __init__(self) -> None:
        self.names: list[str] = []
        self._gates: list[tuple[str, asyncio.Event]] = []

    async def delay(self, operation: str, fault: Fault) -> None:
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
        """For those who wait now, not for those who come later; how many they were."""
        let = [gate for name, gate in self._gates if fnmatchcase(name, operation)]
        for gate in let:
            gate.set()
        return len(let)
