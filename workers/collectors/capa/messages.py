"""Messages about found and unreadable resources for conditions, records and plans. They name the cause and what to do
about it."""

from collections.abc import Sequence

import msgspec

from service.contract.kept import RETAINED_TAG
from workers.collectors.capa.capa_object import OPT_OUT_HINT, CapaObject
from workers.collectors.capa.preconditions import join_names
from workers.collectors.capa.resource_finder import FoundResources, OwnedResource
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kind_calls import POLICY_COMMAND


def describe_error(error: AwsError) -> str:
    """The error; for a denial, the missing permission."""
    if error.what == "denied":
        return f"{error.action} is denied ({error.code}); allow it, as `{POLICY_COMMAND}` prints it"
    return str(error)


def describe_unreadable(finds: FoundResources) -> str:
    """Kinds that can't be read, and why; empty if there are none."""
    return "; ".join(f"{one.kind.name} can't be read: {describe_error(one.error)}" for one in finds.unreadable)


def plan_remarks(finds: FoundResources) -> str:
    """Remarks about a plan; empty if there are none."""
    odd = (
        f"left alone, for their ARNs can't be understood: {join_names(finds.unparsed_arns)}"
        if finds.unparsed_arns
        else ""
    )
    kept = f"kept before, by the tag {RETAINED_TAG}: {resource_names(finds.retained)}" if finds.retained else ""
    return "; ".join(part for part in (describe_unreadable(finds), odd, kept) if part)


def describe_ambiguous(finds: FoundResources, label: str) -> str:
    """Resources that may be the object's, which only its VPC would decide."""
    names = resource_names(finds.ambiguous)
    return f"{names} may be its, but {label} names no VPC in spec.network.vpc.id, which would decide it"


def how_to_name_vpc(finds: FoundResources, subject: CapaObject) -> str:
    """How to set the VPC. CAPA accepts an id where there is none, and no change afterwards."""
    vpcs = sorted({item.resource.vpc for item in finds.ambiguous})
    patch = {"spec": {"network": {"vpc": {"id": vpcs[0] if len(vpcs) == 1 else "VPC_ID"}}}}
    command = f"kubectl patch {subject.kubectl_args} --type merge -p '{msgspec.json.encode(patch).decode()}'"
    return f"if its VPC is {' or '.join(vpcs)}, name it by `{command}`; {OPT_OUT_HINT}"


def resource_names(owned: Sequence[OwnedResource]) -> str:
    return join_names([f"{item.kind.name} {item.resource.id}" for item in owned])
