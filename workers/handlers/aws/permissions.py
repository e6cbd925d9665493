"""IAM policy for the service, built from the declared kinds and the reads that all of them need. `python -m
workers.handlers.aws.permissions FILE` writes it for everything, `knell role --aws-policy` prints what given settings
need. It names no account and no partition, so it fits all."""

import json
import sys
from pathlib import Path
from typing import Any, Final

from service.contract.kept import RETAINED_TAG
from service.settings.aws import AwsSettings
from workers.handlers.aws.capa.latest_objects import CONTROLLER_TASK
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.model import AwsKind
from workers.handlers.aws.retained_tag_calls import OPERATIONS

COMMON_READS: Final = (
    "ec2.DescribeInstances",
    "ec2.DescribeVpcs",
    "eks.DescribeCluster",
    "sts.GetCallerIdentity",
    "tag.GetResources",
)
"""Reads beside the kinds' own: the account, what still runs, and what carries a tag."""

SNAPSHOTS: Final = "SettingSnapshotFirst"

_SERVICES: Final = {"elb": "elasticloadbalancing", "elbv2": "elasticloadbalancing"}
_READ_PREFIXES: Final = ("Describe", "Get")


def action_of(operation: str) -> str:
    """The action as a policy names it: elasticloadbalancing:DeleteLoadBalancer for elbv2.DeleteLoadBalancer."""
    service, _, name = operation.partition(".")
    return f"{_SERVICES.get(service, service)}:{name}"


def policy(settings: AwsSettings | None = None) -> dict[str, Any]:
    """The policy for the tasks and features that the settings allow; without settings, for everything. Reads are one
    statement, changes one for each task and each setting, so that any of them can be left out. Roles that identities
    name are not known here: their owners allow them."""
    reads, changes = {action_of(operation) for operation in COMMON_READS}, dict[str, set[str]]()
    for kind in KINDS:
        is_allowed = settings is None or _is_allowed(kind, settings)
        for operation in kind.operations:
            step = kind.steps.get(operation)
            only = step.setting if step is not None else ""
            if _is_read(operation):
                # Retained resources are found and tagged whatever the tasks are.
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
        # Snapshots are tagged on creation; beside that, only our own tag is written and removed.
        condition = {"StringEquals": {"ec2:CreateAction": "CreateSnapshot"}}
        statements.append(_statement(f"{SNAPSHOTS}Tags", {"ec2:CreateTags"}) | {"Condition": condition})
    if settings is None or settings.mark_retained:
        marks = {action_of(operation) for operation in OPERATIONS}
        # A request without tag keys meets the first condition, and ec2:DeleteTags would then remove all tags: the
        # second condition requires at least one key.
        ours = {"ForAllValues:StringEquals": {"aws:TagKeys": [RETAINED_TAG]}, "Null": {"aws:TagKeys": "false"}}
        statements.append(_statement("SettingMarkRetained", marks) | {"Condition": ours})
    return {"Version": "2012-10-17", "Statement": statements}


def as_text(settings: AwsSettings | None = None) -> str:
    return json.dumps(policy(settings), indent=2) + "\n"


def _is_allowed(kind: AwsKind, settings: AwsSettings) -> bool:
    """Whether a task that the settings allow covers the kind; the Load Balancer Controller's covers several."""
    return kind.task in settings.allowed or (kind.made_by_lbc and CONTROLLER_TASK in settings.allowed)


def _is_read(operation: str) -> bool:
    return operation.partition(".")[2].startswith(_READ_PREFIXES)


def _statement(sid: str, actions: set[str]) -> dict[str, Any]:
    """Not limited by resource: the ownership tag has the cluster's name in its key, and no IAM condition can match an
    unknown key. Ownership is checked before every call instead."""
    return {"Sid": sid, "Effect": "Allow", "Action": sorted(actions), "Resource": "*"}


def _sid(words: str) -> str:
    return "".join(word.capitalize() for word in words.replace("-", " ").replace("_", " ").split())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(as_text())
