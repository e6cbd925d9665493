"""A Python job system that runs in an environment of its own, from a program in `bench/peers`.

Each peer is a subclass in a file of its own, with the settings at which it was found fastest.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.contenders.process import ProcessContender
from bench.environments import locked_version, prepare_python, python_of


class PythonPeer(ProcessContender):
    group: str = "peers"
    package: str
    program: str

    def version(self) -> str:
        return f"{self.package} {locked_version(f'requirements/{self.group}.txt', self.package)}"

    def prepare(self, announce: Callable[[str], None]) -> None:
        prepare_python(self.group, announce)

    def command(self) -> list[str]:
        return [str(python_of(self.group)), "-m", f"bench.peers.{self.program}"]
