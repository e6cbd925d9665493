"""A stand-in for Azure: a small ARM with interfaces, machines, disks, public addresses and Resource Graph, as strict,
as slow and as limited as Azure's own.

Clients go to its address over plain HTTP, with any bearer token, whose text is the principal; the managed identity of
App Service is served at `/msi/token`. Requests with the header `x-knell-setup` are a builder's: not throttled, not
troubled, and marked in the journal.

What it does as Azure does: deletes are accepted and go on, with signed addresses to ask for them; machines take their
interfaces, disks and addresses with them, or let go of them; an interface can be reserved for a machine; what is in
use, locked or nested is refused with Azure's own words; pages with their next address; the token buckets of ARM, of
the network and of compute, and Resource Graph's window, with the headers that tell of them; Resource Graph, in a part
of its language, late and in mixed case. And on demand: denials, throttles, a lock that looks like one, any error,
deletes that fail after they were accepted, pages of a proxy, connections that end before or after the deed, slowness,
and gates that wait to be opened.

Where its clock is faster than ours, spans in headers and messages are told in our seconds: a caller waits in real time.

`GET /_knell/journal?since=N`, also with `what` and `operation`
    A list of `journal.Entry`: every request in order, with its operation, status and code, what went, and what a PUT
    made.
`GET /_knell/delayed`, `POST /_knell/open` with {"operation": "*"}
    The operations of the requests that a fault has waiting; opening lets those go on that wait at a gate.
`GET /_knell/behaviour`, `POST /_knell/behaviour` with some fields of `behaviour.Behaviour`
    How it behaves; fields that are not given stay as they are.
`GET /_knell/clock`, `POST /_knell/clock` with {"advance": seconds} and {"rate": seconds per second}
    Its time. All durations and buckets go by it, so a rate of 3 also means three times Azure's limits.
`GET /_knell/resources?kind=nic`, `POST /_knell/resources` with a list of `resources.Made`
    What is there; makes many at once, and answers with their guids.
`POST /_knell/groups`, `POST /_knell/reserve`, `POST /_knell/remove`
    Declares groups, reserves an interface, has something vanish: `resources.Group`, `asking.Reserve`, `asking.Named`.
"""

from standins.azure.behaviour import Behaviour, Fault, Size
from standins.azure.journal import Entry
from standins.azure.process import LocalAzure, LocalAzureFailed, detached
from standins.azure.resources import Disk, Group, Nic, PublicIp, There, Vm, id_of
from standins.azure.world import GROUP, REGION, SUBSCRIPTION

__all__ = [
    "GROUP",
    "REGION",
    "SUBSCRIPTION",
    "Behaviour",
    "Disk",
    "Entry",
    "Fault",
    "Group",
    "LocalAzure",
    "LocalAzureFailed",
    "Nic",
    "PublicIp",
    "Size",
    "There",
    "Vm",
    "detached",
    "id_of",
]
