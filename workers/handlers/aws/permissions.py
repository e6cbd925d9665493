"""The IAM policy that the AWS side needs, made from what the kinds declare and from what finding and judging ask.
`python -m workers.handlers.aws.permissions FILE` writes it; it names no account and no partition, so it fits all."""

import json
import sys
from pathlib import Path
from typing import Any, Final

from service.contract.kept import RETAINED_TAG
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.marking import OPERATIONS

JUDGING: Final = (
    "ec2.DescribeInstances",
    "ec2.DescribeVpcs",
    "eks.DescribeCluster",
    "sts.GetCallerIdentity",
    "tag.GetResources",
)
"""What is asked beside the kinds' own reads: which account it is, what still runs, and what carries a tag."""

_SERVICES: Final = {"elb": "elasticloadbalancing", "elbv2": "elasticloadbalancing"}
_READS: Final = ("Describe", "Get")


def action_of(operation: str) -> str:
    """As a policy names it: elasticloadbalancing:DeleteLoadBalancer for elbv2.DeleteLoadBalancer."""
    service, _, name = operation.partition(".")
    return f"{_SERVICES.get(service, service)}:{name}"


def policy() -> dict[str, Any]:
    """Reads in one statement, changes in one for each task and each setting that allows more: what is not wanted can be
    left out. Roles that identities name are for their owners to allow: nobody can know them here."""
    reads, changes = {action_of(operation) for operation in JUDGING}, dict[str, set[str]]()
    for kind in KINDS:
        for operation in kind.operations:
            if _is_read(operation):
                reads.add(action_of(operation))
            else:
                step = kind.steps.get(operation)
                sid = f"Setting {step.only}" if step is not None and step.only else f"Task {kind.task}"
                changes.setdefault(_sid(sid), set()).add(action_of(operation))
    statements = [_statement("Reads", reads), *(_statement(sid, changes[sid]) for sid in sorted(changes))]
    # A snapshot is tagged as it is made; beside that the one tag of ours is written, and no other.
    condition = {"StringEquals": {"ec2:CreateAction": "CreateSnapshot"}}
    statements.append(_statement("SettingSnapshotFirstTags", {"ec2:CreateTags"}) | {"Condition": condition})
    only = {"ForAllValues:StringEquals": {"aws:TagKeys": [RETAINED_TAG]}}
    marks = {action_of(operation) for operation in OPERATIONS}
    statements.append(_statement("SettingMarkRetained", marks) | {"Condition": only})
    return {"Version": "2012-10-17", "Statement": statements}


def as_text() -> str:
    return json.dumps(policy(), indent=2) + "\n"


def _is_read(operation: str) -> bool:
    return operation.partition(".")[2].startswith(_READS)


def _statement(sid: str, actions: set[str]) -> dict[str, Any]:
    """On everything: the tag that says whose a resource is has the cluster's name in its key, and no condition of IAM
    can ask for a key that it does not know. Ownership is judged by us, before every call."""
    return {"Sid": sid, "Effect": "Allow", "Action": sorted(actions), "Resource": "*"}


def _sid(words: str) -> str:
    return "".join(word.capitalize() for word in words.replace("-", " ").replace("_", " ").split())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(as_text())
