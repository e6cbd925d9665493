"""Asynchronous deletes: their polling URLs and the responses there.
The URLs are signed and about 3 KB long, as Azure's are; a truncated one is refused."""

import itertools
import math
import uuid
from dataclasses import dataclass
from hashlib import sha512
from typing import Final
from urllib.parse import quote, urlencode

from standins.azure.calls import ArmCall
from standins.azure.responses import ArmResponse, answered, empty, failed
from standins.azure.stored_resources import StoredResource

_SIGNED: Final = 2700
_VERSION: Final = {"network": "2025-05-01", "compute": "2025-04-01"}


@dataclass(slots=True)
class AsyncOperation:
    """`error` is the code and message with which it failed."""

    id: str
    subscription: str
    provider: str
    region: str
    retry_after: str
    done: bool = False
    error: tuple[str, str] | None = None


class AsyncOperations:
    def __init__(self) -> None:
        self._all: dict[str, AsyncOperation] = {}

    def begin(self, resource: StoredResource, retry_after: str) -> AsyncOperation:
        provider = "network" if resource.kind in ("nic", "ip") else "compute"
        spec = resource.spec
        operation = AsyncOperation(str(uuid.uuid4()), spec.subscription, provider, spec.region, retry_after)
        self._all[operation.id] = operation
        return operation

    def get(self, identity: str) -> AsyncOperation | None:
        return self._all.get(identity)

    def accepted(self, operation: AsyncOperation, address: str) -> ArmResponse:
        side = f"{address}/subscriptions/{operation.subscription}/providers/Microsoft.{operation.provider.title()}"
        front, signed = f"{side}/locations/{operation.region}", urlencode(_signature(operation))
        headers = {
            "Azure-AsyncOperation": f"{front}/operations/{operation.id}?{signed}",
            "Location": f"{front}/operationResults/{operation.id}?{signed}",
            # The SDKs parse this one as an integer and fail on anything else.
            "Retry-After": str(math.ceil(float(operation.retry_after))),
            "x-ms-retry-after-ms": f"{float(operation.retry_after) * 1000:.0f}",
        }
        return empty(202, headers)

    def answer(self, call: ArmCall, address: str) -> ArmResponse:
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


def _signature(operation: AsyncOperation) -> dict[str, str]:
    words = (sha512(f"{operation.id}{number}".encode()).hexdigest() for number in itertools.count())
    signed = "".join(itertools.islice(words, _SIGNED // 128 + 1))[:_SIGNED]
    return {
        "api-version": _VERSION[operation.provider],
        "t": "639000000000000000",
        "c": quote(operation.id),
        "s": signed,
        "h": signed[:43],
    }
