"""Knell and what ACK left in an AWS account: a process of `knell run` that observes ACK's objects, and removes the
resources of those that are deleted by Cloud Control."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench import ack_leftovers
from bench.ack_leftovers import KINDS, service_of
from bench.aws_account import BenchAccount, is_throttled
from bench.bench_server import BenchServer
from bench.contenders.cloud_process import until
from bench.contenders.knell_settings import KnellCloudProcess, common, launched, settings_of
from bench.contenders.protocol import ContenderFailedError, RemovedByIdentifier
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.sources.ack import ACK
from standins.aws import AwsJournalEntry
from standins.aws.throttling import CLOUD_CONTROL
from tests.kube import Crd

_REAL_TIME: Final = 1.0
_SEEN_WITHIN: Final = 120.0
_GONE_WITHIN: Final = 1200.0
_OVER_WITHIN: Final = 300.0
_DELETE: Final = "cloudcontrol.DeleteResource"


def document(server: BenchServer, account: BenchAccount, namespace: str) -> dict[str, Any]:
    """What would stand in the file of settings. There is no ACK that could delete a resource first, so that nothing
    waits for it. AWS documents no quota, so that the one that there is gets declared."""
    capacity, rate = CLOUD_CONTROL
    source = {"collector": ACK, "namespaces": [namespace], "adopt_existing": True, "guard": {"enabled": False}}
    return common(server, namespace, {}, account.scale) | {
        "sources": {crd.plural: {**source, "cluster": "bench", "resource": crd.resource} for crd in KINDS},
        "aws": {"endpoint": account.address, "account": account.number},
        "policy": {"services": {service_of(crd): "delete" for crd in KINDS}},
        "limits": {"*/cloudcontrol.all": {"capacity": int(capacity), "rate": rate}},
        ACK: {"grace": 0, "controller_namespace": namespace},
    }


def remove(server: BenchServer, resources: int) -> RemovedByIdentifier:
    cluster = server.cluster
    cluster.run(ack_leftovers.define)
    namespace = cluster.namespace()
    with BenchAccount(_REAL_TIME) as account:
        leftovers = ack_leftovers.fill(account, namespace, resources)
        uids = cluster.run(lambda session: ack_leftovers.create(session, namespace, account, leftovers))
        with launched(document(server, account, namespace), account.credentials) as program:
            process = KnellCloudProcess(server, program)
            if not until(lambda: asyncio.run(_seen(server, uids)), _SEEN_WITHIN, process):
                raise ContenderFailedError(f"it had not seen all objects after {_SEEN_WITHIN:g} s")
            began = cluster.run(lambda session: ack_leftovers.delete(session, namespace, leftovers))
            wanted = {one.identifier for one in leftovers}
            if not until(lambda: _all_ended(account, wanted), _GONE_WITHIN, process):
                left = sorted(wanted - account.ended)
                raise ContenderFailedError(f"{len(left)} resources were left after {_GONE_WITHIN:g} s: {left[0]}, ...")
            if not until(process.over, _OVER_WITHIN, process):
                raise ContenderFailedError(f"it was not over {_OVER_WITHIN:g} s after the last resource was gone")
        account.look()
    calls = account.cloud_control
    return RemovedByIdentifier(
        resources=len(leftovers),
        seconds=calls[-1].real - began,
        used=used(calls),
        calls=len(calls),
        refused=sum(map(is_throttled, calls)),
    )


def used(calls: Sequence[AwsJournalEntry]) -> float:
    """Part of the quota that was used, of a full bucket and all that flowed in from the first call to the last deletion
    that was let through."""
    passed = [entry for entry in calls if not is_throttled(entry)]
    last = max(place for place, entry in enumerate(passed) if entry.action == _DELETE)
    capacity, rate = CLOUD_CONTROL
    return (last + 1) / (capacity + rate * (passed[last].at - calls[0].at))


async def _seen(server: BenchServer, uids: Mapping[Crd, Sequence[str]]) -> bool:
    """Whether the inventory has what each object says of its resource."""
    installation = Installation(settings_of(server))
    try:
        for crd, wanted in uids.items():
            found = await Inventory(installation, crd.plural).get_many(wanted)
            if sum(bool(record.data) for record in found.values()) < len(wanted):
                return False
    finally:
        await installation.aclose()
    return True


def _all_ended(account: BenchAccount, wanted: set[str]) -> bool:
    account.look()
    return wanted <= account.ended
