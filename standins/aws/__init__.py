"""A stand-in for AWS: moto's services behind a layer that makes them as strict, as slow and as forgetful as AWS is.

Clients go to its address with `endpoint_url`, for every service and any region, with an access key that has the twelve
digits of an account in it (`AKIA111122223333`) and any secret; keys from AssumeRole act in the role's account. Served
are ec2, elb, elbv2, resourcegroupstaggingapi, sts, eks and what else moto has. `world` builds worlds over that same
interface, unthrottled and uncounted.

What it does that moto does not: dependencies are enforced (groups, interfaces, addresses, subnets, VPCs); balancers
have interfaces, which drain after them; `net/` and `gwy/` ARNs; deletion protection; DescribeTags of at most 20; a
missing name fails a describe as a whole; filters of at most 200 values; pages, which survive deletions; the tagging API
shows what is deleted, in short and empty pages; things take time to go; AWS's token buckets; roles that ask who comes.
And on demand: a tagging API that shows new things late, denials, throttles, any error, pages of a proxy, connections
that end before or after the deed, slowness.

`GET /_knell/journal?since=N`
    A list of `journal.Entry`: every request in order, with its action, account, status and code, and each interface
    that drained.
`GET /_knell/delayed`
    The actions of the requests that a fault has waiting: they have come, and nothing is done for them yet.
`GET /_knell/behaviour`, `POST /_knell/behaviour` with some fields of `behaviour.Behaviour`
    How it behaves; fields that are not given stay as they are.
`GET /_knell/clock`, `POST /_knell/clock` with {"advance": seconds} and {"rate": seconds per second}
    Its time. All durations and buckets go by it, so a rate of 3 also means three times AWS's limits.
"""

from standins.aws.behaviour import Behaviour, Fault, Role, Stray
from standins.aws.journal import Entry
from standins.aws.process import LocalAws, LocalAwsFailed, detached

__all__ = ["Behaviour", "Entry", "Fault", "LocalAws", "LocalAwsFailed", "Role", "Stray", "detached"]
