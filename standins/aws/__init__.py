"""Stand-in for AWS: moto behind a dispatcher that adds AWS's checks, delays, limits and inconsistencies.

Begin with `process.LocalAws`, which starts it as a child process, `dispatch`, through which every request goes, and
`builder.AwsBuilder`, with which tests create resources. Clients connect with `endpoint_url`, for every service and
region, with an access key that contains the twelve digits of an account (`AKIA111122223333`) and any secret; keys from
AssumeRole act in the account of the role. Served are ec2, elb, elbv2, resourcegroupstaggingapi, sts, eks, s3, rds,
iam, ecr, kms, secretsmanager, logs, Cloud Control for the types in `cloud_control_types`, and whatever else moto has.

Beyond moto: dependencies are enforced (security groups, network interfaces, addresses, subnets, VPCs, IAM policies);
load balancers have network interfaces, which outlive them; `net/` and `gwy/` ARNs; deletion protection; DescribeTags of
at most 20 resources; a describe fails if one name is missing; filters of at most 200 values; pages that survive
deletions; the tagging API lists deleted resources, in short and empty pages; deletions take time; databases have final
snapshots; buckets have an owner and a region; AWS's token buckets; trust policies of roles. Faults on demand: a tagging
API that lists new resources late, denials, throttles, any error, a proxy's page, connections closed before or after the
request took effect, delays.

`GET /_knell/journal?since=N`
    List of `journal.AwsJournalEntry`: every request in order with action, account, status and code, and each network
    interface that was removed after its load balancer.
`GET /_knell/delayed`
    Actions of the requests that a fault delays now: they have arrived, and nothing has been done for them yet.
`GET /_knell/behaviour`, `POST /_knell/behaviour` with some fields of `behaviour.AwsBehaviour`
    Its behaviour; fields that are not given stay as they are.
`GET /_knell/clock`, `POST /_knell/clock` with {"advance": seconds} and {"rate": seconds per second}
    Its clock. All durations and buckets follow it, so a rate of 3 also means three times AWS's limits."""

from standins.aws.behaviour import AssumableRole, AwsBehaviour, AwsFault, StrayTagMapping
from standins.aws.journal import AwsJournalEntry
from standins.aws.process import LocalAws, LocalAwsFailed, detached

__all__ = [
    "AssumableRole",
    "AwsBehaviour",
    "AwsFault",
    "AwsJournalEntry",
    "LocalAws",
    "LocalAwsFailed",
    "StrayTagMapping",
    "detached",
]
