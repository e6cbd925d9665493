"""The IAM policy that the AWS side needs, made from what the kinds declare and from what finding and judging ask.
`python -m workers.handlers.aws.permissions FILE` writes it for everything, `knell role --aws-policy` prints what given
settings need; it names no account and no partition, so it fits all."""

import json
import sys
from pathlib import Path
from typing import Any, Final

from service.contract.kept import RETAINED_TAG
from service.settings.aws import AwsSettings
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.marking import OPERATIONS
from workers.handlers.aws.model import Kind
from workers.handlers.aws.wanting import CONTROLLER_TASK

JUDGING: Final = (
    "ec2.DescribeInstances",
    "ec2.DescribeVpcs",
    "eks.DescribeCluster",
    "sts.GetCallerIdentity",
    "tag.GetResources",
)
"""What is asked beside the kinds' own reads: which account it is, what still runs, and what carries a tag."""

SNAPSHOTS: Final = "SettingSnapshotFirst"

_SERVICES: Final = {"elb": "elasticloadbalancing", "elbv2": "elasticloadbalancing"}
_READS: Final = ("Describe", "Get")


def action_of(operation: str) -> str:
    """As a policy names it: elasticloadbalancing:DeleteLoadBalancer for elbv2.DeleteLoadBalancer."""
    service, _, name = operation.partition(".")
    return f"{_SERVICES.get(service, service)}:{name}"


def policy(settings: AwsSettings | None = None) -> dict[str, Any]:
    """For the tasks that settings allow and what else they switch on; without settings, for everything. Reads are one
    statement, changes one for each task and each setting that allows more: what is not wanted can be left out. Roles
    that identities name are for their owners to allow: nobody can know them here."""
    reads, changes = {action_of(operation) for operation in JUDGING}, dict[str, set[str]]()
    for kind in KINDS:
        is_allowed = settings is None or _is_allowed(kind, settings)
        for operation in kind.operations:
            step = kind.steps.get(operation)
            only = step.only if step is not None else ""
            if _is_read(operation):
                # What is retained is found and marked whatever the tasks are.
                if is_allowed or (settings is not None and settings.mark_retained):
                    reads.add(action_of(operation))
            elif not is_allowed:
                continue
            elif not only:
                changes.setdefault(_sid(f"Task {kind.task}"), set()).add(action_of(operation))
            elif settings is None or getattr(settings, only):
                changes.setdefault(_sid(f"Setting {only}"), set()).add(action_of(operation))
    statements = [_statement("Reads", reads), *(_statement(sid, changes[sid]) for sid in sorted(changes))]
    if SNAPSHOTS in changes:
        # A snapshot is tagged as it is made; beside that the one tag of ours is written and removed, and no other.
        condition = {"StringEquals": {"ec2:CreateAction": "CreateSnapshot"}}
        statements.append(_statement(f"{SNAPSHOTS}Tags", {"ec2:CreateTags"}) | {"Condition": condition})
    if settings is None or settings.mark_retained:
        marks = {action_of(operation) for operation in OPERATIONS}
        # A request that names no tag meets the first condition, and ec2:DeleteTags then takes off all: the second asks
        # that it names some.
        ours = {"ForAllValues:StringEquals": {"aws:TagKeys": [RETAINED_TAG]}, "Null": {"aws:TagKeys": "false"}}
        statements.append(_statement("SettingMarkRetained", marks) | {"Condition": ours})
    return {"Version": "2012-10-17", "Statement": statements}


def as_text(settings: AwsSettings | None = None) -> str:
    return json.dumps(policy(settings), indent=2) + "\n"


def _is_allowed(kind: Kind, settings: AwsSettings) -> bool:
    """The Load Balancer Controller's task is about several kinds."""
    return kind.task in settings.allowed or (kind.of_lbc and CONTROLLER_TASK in settings.allowed)


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
