"""kopf: a framework for operators, which keeps what it has to remember in the objects themselves.

In an environment of its own, with the settings at which its documentation says that it does least beside the handlers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bench import objects
from bench.bench_server import BenchServer
from bench.contenders.watching import WatchingContender, take_over
from bench.environments import locked_version, prepare_python, python_of
from bench.order import PEERING
from tests.kube import Crd

_PEERINGS: Final = Crd("kopf.dev", "kopfpeerings", called="KopfPeering")


class Kopf(WatchingContender):
    name = "kopf"
    settings = (
        "an async on.delete handler, its own namespace only, Events off, standalone, no scanning for new resources, "
        "nothing logged but warnings, no limit of workers (its default), uvloop; two replicas: peering instead of "
        "standalone, the one that leads with the higher priority, records that last 60 s (its default)"
    )
    cannot_watch = "keeps a whole operator's memory of each object, which is another thing than a watch"

    def version(self) -> str:
        return f"kopf {locked_version('requirements/kopf.txt', 'kopf')}"

    def prepare(self, announce: Callable[[str], None]) -> None:
        prepare_python("kopf", announce)

    def take_over(self, server: BenchServer, *, in_order: bool) -> float:
        return take_over(
            self.name,
            self.command(),
            server,
            in_order=in_order,
            prepare_namespace=lambda namespace: _create_peering(server, namespace),
        )

    def command(self) -> list[str]:
        return [str(python_of("kopf")), "-m", "bench.peers.kopf_peer"]


def _create_peering(server: BenchServer, namespace: str) -> None:
    """The object in which its replicas tell of each other."""
    server.cluster.run(lambda session: objects.define_crds(session, [_PEERINGS]))
    body = _PEERINGS.body(PEERING)
    server.cluster.run(lambda session: objects.create(session, [(_PEERINGS.path(namespace), body)]))
