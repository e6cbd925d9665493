"""Why Azure refuses: each refusal with the status, the code and the words that it has there.
Some things stand only in the words, such as for how long an interface is reserved."""

from typing import Final

from standins.azure.answers import Answer, failed
from standins.azure.calls import Call
from standins.azure.resources import TYPES, Kind
from standins.azure.thing import Thing

_ACTIONS: Final = {"get": "read", "list": "read", "put": "write", "update": "write", "delete": "delete"}


def unauthenticated() -> Answer:
    return failed(401, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")


def not_served(call: Call) -> Answer:
    return failed(404, "InvalidResourceType", f"The stand-in does not serve {call.method} {call.path}.")


def no_subscription(subscription: str) -> Answer:
    return failed(404, "SubscriptionNotFound", f"The subscription '{subscription}' could not be found.")


def no_group(group: str) -> Answer:
    return failed(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")


def not_found(kind: Kind, group: str, name: str) -> Answer:
    words = (
        f"The Resource '{TYPES[kind]}/{name}' under resource group '{group}' was not found. "
        "For more details please go to https://aka.ms/ARMResourceNotFoundFix"
    )
    return failed(404, "ResourceNotFound", words)


def reserved(vm: str, span: str) -> Answer:
    words = (
        f"Nic(s) in request is reserved for another Virtual Machine for {span} seconds. "
        f"Please provide another nic(s) or retry after {span} seconds. Reserved VM: {vm}"
    )
    return failed(400, "NicReservedForAnotherVm", words, details=[])


def in_use(thing: Thing) -> Answer:
    """What is attached to something: each kind is refused in its own way."""
    if thing.kind == "nic":
        words = (
            f"Network Interface {thing.id} is used by existing resource {thing.holder}. In order to delete the network "
            "interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic."
        )
        return failed(400, "NicInUse", words, details=[])
    if thing.kind == "ip":
        words = (
            f"Public IP address {thing.id} can not be deleted since it is still allocated to resource "
            f"{thing.holder}/ipConfigurations/{thing.holder.rpartition('/')[2]}. In order to delete the public IP, "
            "disassociate/detach the Public IP address from the resource. To learn how to do this, see "
            "aka.ms/deletepublicip."
        )
        return failed(400, "PublicIPAddressCannotBeDeleted", words, details=[])
    return failed(409, "OperationNotAllowed", f"Disk {thing.made.name} is attached to VM {thing.holder}.")


def locked(identity: str, scope: str) -> Answer:
    words = (
        f"The scope '{identity}' cannot perform delete operation because following scope(s) are locked: '{scope}'. "
        "Please remove the lock and try again."
    )
    return failed(409, "ScopeLocked", words)


def nested(identity: str) -> Answer:
    words = (
        "Cannot delete resource while nested resources exist. Some existing nested resource IDs include: "
        f"'{identity}/extensions/one'. Please delete all nested resources before deleting this resource."
    )
    return failed(409, "CannotDeleteResource", words)


def busy(identity: str) -> Answer:
    words = (
        "Another operation on this or dependent resource is in progress. To retrieve status of the operation use uri: "
        f"{identity}/operations."
    )
    return failed(409, "AnotherOperationInProgress", words, details=[])


def denied(call: Call) -> Answer:
    words = (
        f"The client '{call.principal}' with object id '{call.principal}' does not have authorization to perform "
        f"action '{_action(call)}' over scope '{call.id or call.path}' or the scope is invalid. If access was recently "
        "granted, please refresh your credentials."
    )
    return failed(403, "AuthorizationFailed", words)


def denied_by_assignment(call: Call) -> Answer:
    words = (
        f"The client '{call.principal}' with object id '{call.principal}' has permission to perform action "
        f"'{_action(call)}' on scope '{call.id or call.path}'; however, the access is denied because of the deny "
        "assignment with name 'managed resources' and Id 'deny' at scope "
        f"'/subscriptions/{call.subscription}/resourceGroups/{call.group}'."
    )
    return failed(403, "DenyAssignmentAuthorizationFailed", words)


def _action(call: Call) -> str:
    if call.operation.endswith(".tag"):
        return "Microsoft.Resources/tags/write"
    if call.kind is None:
        return "Microsoft.ResourceGraph/resources/read"
    return f"{TYPES[call.kind]}/{_ACTIONS[call.operation.partition('.')[2]]}"
