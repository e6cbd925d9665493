"""IAM policy for clusters on AWS, by the tasks and features that settings allow. `workers/permissions.py` merges it
with those of other sources."""

from typing import Any, Final

from service.settings import Settings
from service.sources.capa import AwsSettings
from workers.collectors.capa.kinds import CAPA_KINDS
from workers.providers.aws.permissions import SNAPSHOT_SETTING, action_of, actions_of, policy_document, setting_name

COMMON_READS: Final = (
    "ec2.DescribeInstances",
    "ec2.DescribeVpcs",
    "eks.DescribeCluster",
    "sts.GetCallerIdentity",
    "tag.GetResources",
)
"""Reads beside the kinds' own: the account, what still runs, and what carries a tag."""


def policy(settings: AwsSettings | None = None) -> dict[str, Any]:
    """The policy for the tasks and features that the settings allow; without settings, for everything. Changes are one
    statement for each task and each setting. Roles that identities name are not known here: their owners allow them."""
    reads, changes = {action_of(operation) for operation in COMMON_READS}, dict[str, set[str]]()
    for row in CAPA_KINDS.values():
        is_allowed = settings is None or row.wanted_by(settings.allowed)
        for one in actions_of(row.kind):
            if one.read:
                if is_allowed:
                    reads.add(one.action)
            elif not is_allowed:
                continue
            elif not one.setting:
                changes.setdefault(f"Task {row.task}", set()).add(one.action)
            elif settings is None or getattr(settings, one.setting):
                changes.setdefault(setting_name(one.setting), set()).add(one.action)
    snapshots = setting_name(SNAPSHOT_SETTING) in changes
    marks_retained = settings is None or settings.mark_retained
    return policy_document(reads, changes, snapshots=snapshots, marks_retained=marks_retained)


def aws_policy(settings: Settings | None) -> dict[str, Any]:
    return policy(None if settings is None else settings.section(AwsSettings))
