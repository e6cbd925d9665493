"""Builder of IAM policies from the declared kinds. Which kinds and settings are allowed is the collector's to say. A
policy names no account and no partition, so it fits all."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from service.contract.kept import RETAINED_TAG
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.retained_tag_calls import tag_operations
from workers.providers.aws.services import is_read, service_of

SNAPSHOT_SETTING: Final = "snapshot_first"
"""The setting of steps that create snapshots."""


class KindAction(NamedTuple):
    """An action that a kind needs: a read, or a change; with `setting` only if that is on."""

    action: str
    read: bool
    setting: str = ""


def action_of(operation: str) -> str:
    """The action as a policy names it: elasticloadbalancing:DeleteLoadBalancer for elbv2.DeleteLoadBalancer. Raises
    Undeclared."""
    return _actions_of(operation)[0]


def _actions_of(operation: str) -> tuple[str, ...]:
    service, name = service_of(operation)
    return service.actions(name)


def actions_of(kind: AwsKind) -> Iterator[KindAction]:
    for operation in kind.operations:
        step = kind.steps.get(operation)
        for action in _actions_of(operation):
            yield KindAction(action, is_read(operation), step.setting if step is not None else "")


def policy_document(
    reads: set[str], changes: Mapping[str, set[str]], *, snapshots: bool, marks_retained: bool,
    kinds: Iterable[AwsKind] = (),
) -> dict[str, Any]:  # fmt: skip
    """Reads are one statement, changes one for each name, so that any of them can be left out. With `snapshots` the
    snapshots of volumes may be tagged on creation, with `marks_retained` our own tag may be written and removed; beside
    that, no tag is changed. `knell kept` looks for that tag among all kinds of the provider, whichever are removed;
    `kinds` are those that the collector adds to them."""
    tagged = (*KINDS, *kinds)
    if marks_retained:
        reads = reads | {one.action for kind in tagged for one in actions_of(kind) if one.read}
    statements = [_statement("Reads", reads)]
    statements += [_statement(_sid(name), changes[name]) for name in sorted(changes, key=_sid)]
    if snapshots:
        condition = {"StringEquals": {"ec2:CreateAction": "CreateSnapshot"}}
        name = f"{_sid(setting_name(SNAPSHOT_SETTING))}Tags"
        statements.append(_statement(name, {"ec2:CreateTags"}) | {"Condition": condition})
    if marks_retained:
        marks = {action_of(operation) for operation in tag_operations(tagged)}
        # A request without tag keys meets the first condition, and ec2:DeleteTags would then remove all tags: the
        # second condition requires at least one key.
        ours = {"ForAllValues:StringEquals": {"aws:TagKeys": [RETAINED_TAG]}, "Null": {"aws:TagKeys": "false"}}
        statements.append(_statement("SettingMarkRetained", marks) | {"Condition": ours})
    return {"Version": "2012-10-17", "Statement": statements}


def setting_name(setting: str) -> str:
    """Name of the statement for changes that need a setting."""
    return f"Setting {setting}"


def _statement(sid: str, actions: set[str]) -> dict[str, Any]:
    """Not limited by resource: an ownership tag may have the owner's name in its key, and no IAM condition can match an
    unknown key. Ownership is checked before every call instead."""
    return {"Sid": sid, "Effect": "Allow", "Action": sorted(actions), "Resource": "*"}


def _sid(words: str) -> str:
    return "".join(word.capitalize() for word in words.replace("-", " ").replace("_", " ").split())
