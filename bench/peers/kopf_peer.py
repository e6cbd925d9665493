"""kopf's operator for the bench: a handler for deletions that does nothing; run only inside kopf's own environment.

What its documentation names as cost beside the handlers is off: Events, scanning, a second loop, and peering unless
there are two replicas.
"""
# mypy: ignore-errors

import asyncio
import os
import sys

import kopf
import uvloop

from bench.order import PEERING, TOKEN_VARIABLE, WatchOrder
from bench.peers.starts import Starts
from bench.peers.tally import answer

PRIORITIES = {"lead": 100, "stand-by": 1}

ORDER = WatchOrder.decode(sys.argv[1])
STARTS = Starts()


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False
    settings.scanning.disabled = True


@kopf.on.login()
def login(**_):
    return kopf.ConnectionInfo(
        server=ORDER.url, ca_path=ORDER.ca or None, scheme="Bearer", token=os.environ[TOKEN_VARIABLE]
    )


@kopf.on.delete(ORDER.group, ORDER.version, ORDER.plural)
async def delete(name, **_):
    STARTS.began(name)


async def main():
    ready = asyncio.Event()
    if ORDER.task in PRIORITIES:
        alone = {"peering_name": PEERING, "priority": PRIORITIES[ORDER.task]}
    else:
        alone = {"standalone": True}
    operator = asyncio.create_task(
        kopf.operator(**alone, namespaces=[ORDER.namespace], ready_flag=ready)
    )  # fmt: skip
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait((operator, waiting), return_when=asyncio.FIRST_COMPLETED)
    if ready.is_set():
        answer(ready=True)
    await operator


if __name__ == "__main__":
    uvloop.run(main())
