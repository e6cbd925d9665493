"""Brings kinds to an API server and waits until it serves them.
A moment passes between a definition and the first list of its objects."""

import asyncio
from collections.abc import Iterable
from typing import Final

from service.kubernetes import CRDS, Cluster, NotFound, NotServed, Served
from standins.demo.kinds import Kind

_STEP: Final = 0.05


async def define(cluster: Cluster, kinds: Iterable[Kind]) -> dict[Kind, Served]:
    """Returns when all of them are served."""
    wanted = tuple(kinds)
    for kind in wanted:
        await cluster.create(CRDS, "", kind.definition())
    return {kind: await _until_served(cluster, kind) for kind in wanted}


async def _until_served(cluster: Cluster, kind: Kind) -> Served:
    while True:
        try:
            served = await cluster.discover(kind.resource)
            await cluster.request("GET", served.path(), query={"limit": "1"})
        except (NotServed, NotFound):
            await asyncio.sleep(_STEP)
        else:
            return served
