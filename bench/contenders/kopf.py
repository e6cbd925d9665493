"""kopf: a framework for operators, which keeps what it has to remember in the objects themselves.

In an environment of its own, with the settings at which its documentation says that it does least beside the handlers.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.contenders.watching import Watching
from bench.environments import locked_version, prepare_python, python_of


class Kopf(Watching):
    name = "kopf"
    settings = (
        "an async on.delete handler, its own namespace only, Events off, standalone, no scanning for new resources, "
        "nothing logged but warnings, no limit of workers (its default), uvloop"
    )
    cannot_watch = "keeps a whole operator's memory of each object, which is another thing than a watch"

    def version(self) -> str:
        return f"kopf {locked_version('requirements/kopf.txt', 'kopf')}"

    def prepare(self, announce: Callable[[str], None]) -> None:
        prepare_python("kopf", announce)

    def command(self) -> list[str]:
        return [str(python_of("kopf")), "-m", "bench.peers.kopf_peer"]
