"""Stand-in for Azure: a small ARM with network interfaces, VMs, disks, public IP addresses and Resource Graph, with
Azure's checks, delays, limits and error messages.

Begin with `process.LocalAzure`, which starts it as a child process, and `dispatch`, through which every request goes.
Clients connect over plain HTTP with any bearer token, whose text is the principal; the managed identity endpoint of App
Service is at `/msi/token`. Requests with the header `x-knell-setup` create test data: they are not throttled, get no
faults and are marked in the journal.

As Azure does: deletes are accepted and take time, with signed URLs to poll; a VM deletes or detaches its network
interfaces, disks and addresses; a network interface can be reserved for a VM; resources that are in use, locked or have
nested resources are refused with Azure's messages; lists have pages; the token buckets of ARM, network and compute and
the window of Resource Graph apply, with their headers; Resource Graph understands a part of its query language, is
behind by a lag, and varies the case of ids. Faults on demand: denials, throttles, a 429 that means a lock, any error,
deletes that fail after they were accepted, a proxy's page, connections closed before or after the request took effect,
delays, and gates that wait to be opened.

With a clock faster than real time, durations in headers and messages are given in real seconds, in which callers wait.

`GET /_knell/journal?since=N`, also with `what` and `operation`
    List of `journal.AzureJournalEntry`: every request in order with operation, status and code, every deletion that
    completed, and what a PUT created.
`GET /_knell/delayed`, `POST /_knell/open` with {"operation": "*"}
    Operations of the requests that a fault delays now; opens the gates for those that wait at one.
`GET /_knell/behaviour`, `POST /_knell/behaviour` with some fields of `behaviour.AzureBehaviour`
    Its behaviour; fields that are not given stay as they are.
`GET /_knell/clock`, `POST /_knell/clock` with {"advance": seconds} and {"rate": seconds per second}
    Its clock. All durations and buckets follow it, so a rate of 3 also means three times Azure's limits.
`GET /_knell/resources?kind=nic`, `POST /_knell/resources` with a list of `resources.NewResource`
    The resources that exist; creates many at once and returns their guids.
`POST /_knell/groups`, `POST /_knell/reserve`, `POST /_knell/remove`
    Declares resource groups (`resources.ResourceGroup`), reserves a network interface
    (`control_messages.ReserveRequest`), removes a resource at once (`control_messages.ResourceName`)."""

from standins.azure.behaviour import AzureBehaviour, AzureFault, BucketSize
from standins.azure.journal import AzureJournalEntry
from standins.azure.process import LocalAzure, LocalAzureFailed, detached
from standins.azure.resources import (
    GROUP,
    REGION,
    SUBSCRIPTION,
    Disk,
    Nic,
    PublicIp,
    ResourceGroup,
    ResourceState,
    Vm,
    id_of,
)

__all__ = [
    "GROUP",
    "REGION",
    "SUBSCRIPTION",
    "AzureBehaviour",
    "AzureFault",
    "AzureJournalEntry",
    "BucketSize",
    "Disk",
    "LocalAzure",
    "LocalAzureFailed",
    "Nic",
    "PublicIp",
    "ResourceGroup",
    "ResourceState",
    "Vm",
    "detached",
    "id_of",
]
