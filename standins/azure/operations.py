"""Deletes that were accepted and go on: the addresses at which a caller asks for them, and what it is told there.
The addresses are signed and about 3 KB long, as Azure's are; who shortens one is refused."""

import itertools
import math
import uuid
from dataclasses import dataclass
from hashlib import sha512
from typing import Final
from urllib.parse import quote, urlencode

from standins.azure.answers import Answer, answered, empty, failed
from standins.azure.calls import Call
from standins.azure.thing import Thing

_SIGNED: Final = 2700
_VERSION: Final = {"network": "2025-05-01", "compute": "2025-04-01"}


@dataclass(slots=True)
class Operation:
    """`error` is why it failed, as a code and a message."""

    id: str
    subscription: str
    provider: str
    region: str
    retry_after: str
    done: bool = False
    error: tuple[str, str] | None = None


class Operations:
    def __init__(self) -> None:
        self._all: dict[str, Operation] = {}

    def begin(self, thing: Thing, retry_after: str) -> Operation:
        provider = "network" if thing.kind in ("nic", "ip") else "compute"
        made = thing.made
        operation = Operation(str(uuid.uuid4()), made.subscription, provider, made.region, retry_after)
        self._all[operation.id] = operation
        return operation

    def get(self, identity: str) -> Operation | None:
        return self._all.get(identity)

    def accepted(self, operation: Operation, address: str) -> Answer:
        side = f"{address}/subscriptions/{operation.subscription}/providers/Microsoft.{operation.provider.title()}"
        front, signed = f"{side}/locations/{operation.region}", urlencode(_signature(operation))
        headers = {
            "Azure-AsyncOperation": f"{front}/operations/{operation.id}?{signed}",
            "Location": f"{front}/operationResults/{operation.id}?{signed}",
            # The clients read this one as a whole number, and fail on any other.
            "Retry-After": str(math.ceil(float(operation.retry_after))),
            "x-ms-retry-after-ms": f"{float(operation.retry_after) * 1000:.0f}",
        }
        return empty(202, headers)

    def answer(self, call: Call, address: str) -> Answer:
        operation = self._all.get(call.name)
        if operation is None or operation.subscription.lower() != call.subscription.lower():
            return failed(404, "NotFound", f"The operation {call.name} was not found.")
        if call.query.get("s") != _signature(operation)["s"]:
            return failed(403, "AuthorizationFailed", "The signature of the address is not right.")
        waiting = {"Retry-After": operation.retry_after}
        if call.poll == "operations":
            if operation.error is not None:
                code, message = operation.error
                return answered({"status": "Failed", "error": {"code": code, "message": message, "details": []}})
            return answered({"status": "Succeeded"} if operation.done else {"status": "InProgress"}, headers=waiting)
        if operation.error is not None:
            return failed(409, *operation.error)
        return empty(204) if operation.done else self.accepted(operation, address)


def _signature(operation: Operation) -> dict[str, str]:
    words = (sha512(f"{operation.id}{number}".encode()).hexdigest() for number in itertools.count())
    signed = "".join(itertools.islice(words, _SIGNED // 128 + 1))[:_SIGNED]
    return {
        "api-version": _VERSION[operation.provider],
        "t": "639000000000000000",
        "c": quote(operation.id),
        "s": signed,
        "h": signed[:43],
    }
