"""Sentences about what was found and what was not, for people who read conditions, records and plans.
They name what is in the way and what to do about it."""

from collections.abc import Sequence

import msgspec

from service.contract.kept import RETAINED_TAG
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.evidence import listed
from workers.handlers.aws.finding import Claim, Finds
from workers.handlers.aws.owners import LET_GO, Subject
from workers.handlers.aws.readying import POLICY


def told(error: AwsError) -> str:
    """What AWS said; of what it denied, which permission is wanting."""
    if error.what == "denied":
        return f"{error.action} is denied ({error.code}); allow it, as {POLICY} does"
    return str(error)


def unread(finds: Finds) -> str:
    """Which kinds can't be read, and why; empty where all can."""
    return "; ".join(f"{one.kind.name} can't be read: {told(one.error)}" for one in finds.unread)


def remarks(finds: Finds) -> str:
    """What a person should know of a plan; empty where there is nothing."""
    odd = f"left alone, for their ARNs can't be understood: {listed(finds.odd)}" if finds.odd else ""
    kept = f"kept before, by the tag {RETAINED_TAG}: {named(finds.kept)}" if finds.kept else ""
    return "; ".join(part for part in (unread(finds), odd, kept) if part)


def vague(finds: Finds, whose: str) -> str:
    """Resources that may be the object's, which only its VPC would decide."""
    return f"{named(finds.vague)} may be its, but {whose} names no VPC in spec.network.vpc.id, which would decide it"


def to_name_vpc(finds: Finds, subject: Subject) -> str:
    """What a person does about it. CAPA accepts an id where there is none, and no other one afterwards."""
    vpcs = sorted({claim.found.vpc for claim in finds.vague})
    patch = {"spec": {"network": {"vpc": {"id": vpcs[0] if len(vpcs) == 1 else "VPC_ID"}}}}
    command = f"kubectl patch {subject.addressed} --type merge -p '{msgspec.json.encode(patch).decode()}'"
    return f"if its VPC is {' or '.join(vpcs)}, name it by `{command}`; {LET_GO}"


def named(claims: Sequence[Claim]) -> str:
    return listed([f"{claim.kind.name} {claim.found.id}" for claim in claims])
