"""Error responses of Azure, each with Azure's own status, code and message, including the 429s of every limiter.
Some facts are in the message only, such as how long a network interface is reserved."""

from typing import Final

from standins.azure.behaviour import AzureBehaviour
from standins.azure.calls import ArmCall
from standins.azure.resources import TYPES, ResourceKind
from standins.azure.responses import ArmResponse, failed, seconds
from standins.azure.stored_resources import StoredResource
from standins.clock import Clock

_LOCK_WAITS: Final = 11.0
_ACTIONS: Final = {"get": "read", "list": "read", "put": "write", "update": "write", "delete": "delete"}


def unauthenticated() -> ArmResponse:
    return failed(401, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")


def not_served(call: ArmCall) -> ArmResponse:
    return failed(404, "InvalidResourceType", f"The stand-in does not serve {call.method} {call.path}.")


def no_subscription(subscription: str) -> ArmResponse:
    return failed(404, "SubscriptionNotFound", f"The subscription '{subscription}' could not be found.")


def no_group(group: str) -> ArmResponse:
    return failed(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")


def not_found(kind: ResourceKind, group: str, name: str) -> ArmResponse:
    message = (
        f"The Resource '{TYPES[kind]}/{name}' under resource group '{group}' was not found. "
        "For more details please go to https://aka.ms/ARMResourceNotFoundFix"
    )
    return failed(404, "ResourceNotFound", message)


def reserved(vm: str, span: str) -> ArmResponse:
    message = (
        f"Nic(s) in request is reserved for another Virtual Machine for {span} seconds. "
        f"Please provide another nic(s) or retry after {span} seconds. Reserved VM: {vm}"
    )
    return failed(400, "NicReservedForAnotherVm", message, details=[])


def in_use(resource: StoredResource) -> ArmResponse:
    """For a resource that is attached to another; the error depends on its kind."""
    if resource.kind == "nic":
        message = (
            f"Network Interface {resource.id} is used by existing resource {resource.holder}. In order to delete "
            "the network interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic."
        )
        return failed(400, "NicInUse", message, details=[])
    if resource.kind == "ip":
        message = (
            f"Public IP address {resource.id} can not be deleted since it is still allocated to resource "
            f"{resource.holder}/ipConfigurations/{resource.holder.rpartition('/')[2]}. In order to delete the public "
            "IP, disassociate/detach the Public IP address from the resource. To learn how to do this, see "
            "aka.ms/deletepublicip."
        )
        return failed(400, "PublicIPAddressCannotBeDeleted", message, details=[])
    return failed(409, "OperationNotAllowed", f"Disk {resource.spec.name} is attached to VM {resource.holder}.")


def locked(identity: str, scope: str) -> ArmResponse:
    message = (
        f"The scope '{identity}' cannot perform delete operation because following scope(s) are locked: '{scope}'. "
        "Please remove the lock and try again."
    )
    return failed(409, "ScopeLocked", message)


def nested(identity: str) -> ArmResponse:
    message = (
        "Cannot delete resource while nested resources exist. Some existing nested resource IDs include: "
        f"'{identity}/extensions/one'. Please delete all nested resources before deleting this resource."
    )
    return failed(409, "CannotDeleteResource", message)


def busy(identity: str) -> ArmResponse:
    message = (
        "Another operation on this or dependent resource is in progress. To retrieve status of the operation use uri: "
        f"{identity}/operations."
    )
    return failed(409, "AnotherOperationInProgress", message, details=[])


def denied(call: ArmCall) -> ArmResponse:
    message = (
        f"The client '{call.principal}' with object id '{call.principal}' does not have authorization to perform "
        f"action '{_action(call)}' over scope '{call.id or call.path}' or the scope is invalid. If access was recently "
        "granted, please refresh your credentials."
    )
    return failed(403, "AuthorizationFailed", message)


def denied_by_assignment(call: ArmCall) -> ArmResponse:
    message = (
        f"The client '{call.principal}' with object id '{call.principal}' has permission to perform action "
        f"'{_action(call)}' on scope '{call.id or call.path}'; however, the access is denied because of the deny "
        "assignment with name 'managed resources' and Id 'deny' at scope "
        f"'/subscriptions/{call.subscription}/resourceGroups/{call.group}'."
    )
    return failed(403, "DenyAssignmentAuthorizationFailed", message)


def _action(call: ArmCall) -> str:
    if call.operation.endswith(".tag"):
        return "Microsoft.Resources/tags/write"
    if call.kind is None:
        return "Microsoft.ResourceGraph/resources/read"
    return f"{TYPES[call.kind]}/{_ACTIONS[call.operation.partition('.')[2]]}"


def throttled_by_arm(call: ArmCall, clock: Clock, behaviour: AzureBehaviour) -> ArmResponse:
    span = seconds(clock, behaviour.arm_retry_after)
    message = (
        f"Number of '{call.sort}' requests for subscription '{call.subscription}' and principal '{call.principal}' "
        f"exceeded the limit. Please try again after '{span}' seconds after additional tokens are available. "
        "Refer to https://aka.ms/arm-throttling for additional information."
    )
    return failed(429, "SubscriptionRequestsThrottled", message, retry_after=span)


def throttled_by_network(clock: Clock, behaviour: AzureBehaviour) -> ArmResponse:
    after = behaviour.network_retry_after
    message = "The request is being throttled as the limit has been reached for operation type."
    span = seconds(clock, after) if after is not None else ""
    return failed(429, "TooManyRequests", message, details=[], retry_after=span)


def throttled_by_compute(clock: Clock, wait: float, bucket: str) -> ArmResponse:
    message = "The server rejected the request because too many requests have been received for this subscription."
    inner = f'{{"operationGroup":"{bucket}","requestCount":1}}'
    details = [{"code": "TooManyRequests", "target": bucket, "message": inner}]
    return failed(429, "OperationNotAllowed", message, details=details, retry_after=seconds(clock, wait))


def throttled_by_graph(clock: Clock, wait: float) -> ArmResponse:
    message = "Please provide below info when asking for support: the request was throttled."
    details = [
        {
            "code": "RateLimiting",
            "message": "Client application has been throttled and should not attempt to "
            "repeat the request until an amount of time has elapsed. Please see help for additional information: "
            "https://aka.ms/resourcegraph-throttling",
        }
    ]
    return failed(429, "RateLimiting", message, details=details, retry_after=seconds(clock, wait))


def throttled_by_lock(clock: Clock) -> ArmResponse:
    """A 429 that is no throttle: another operation holds the lock of the network."""
    message = "A retryable error occurred."
    details = [
        {
            "code": "RetryableErrorDueToAnotherOperation",
            "message": "Operation on this resource was preempted, or another operation holds its lock.",
        }
    ]
    return failed(429, "RetryableError", message, details=details, retry_after=seconds(clock, _LOCK_WAITS))


def throttled_on_demand(call: ArmCall, clock: Clock, behaviour: AzureBehaviour) -> ArmResponse:
    """The 429 of the provider for a call that the provider limits, otherwise that of ARM."""
    if call.provider == "graph":
        return throttled_by_graph(clock, behaviour.graph_window)
    if call.provider == "network" and call.sort == "deletes":
        return throttled_by_network(clock, behaviour)
    if call.provider == "compute" and call.sort == "deletes":
        return throttled_by_compute(clock, 60.0, "DeleteVMSubscriptionMaximum")
    return throttled_by_arm(call, clock, behaviour)
