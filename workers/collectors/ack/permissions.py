"""IAM policy for ACK's resources, by the services of the settings' sources. `workers/permissions.py` merges it with
those of other sources."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from service.settings import Settings
from service.sources.ack import ACK, AckSettings, service_of_resource
from workers.collectors.ack.handler_actions import HANDLER_ACTIONS
from workers.collectors.ack.removable_kinds import removable_kind
from workers.collectors.ack.types import TYPES
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.permissions import action_of, actions_of, policy_document, setting_name

COMMON_READS: Final = ("sts.GetCallerIdentity",)
"""Reads beside the kinds' own."""


def policy(services: Iterable[str] | None = None, *, marks_retained: bool = True) -> dict[str, Any]:
    """For these services of ACK, or for all. Changes are one statement for each service and each setting. Roles of
    other accounts are not known here: their owners allow them, and this process to assume them."""
    wanted = None if services is None else set(services)
    kinds = dict[str, AwsKind]()
    reads, changes = {action_of(operation) for operation in COMMON_READS}, dict[str, set[str]]()
    for name, row in TYPES.items():
        service = name.partition("/")[0]
        if row.held or (wanted is not None and service not in wanted):
            continue
        mine = changes.setdefault(f"Ack {service}", set())
        if (handlers := HANDLER_ACTIONS.get(row.removes)) is not None:
            # Some of them read much: they can be left out with their service.
            mine.update(handlers.reads, handlers.deletes)
        if (kind := removable_kind(row.kind)) is None:
            continue
        kinds[kind.name] = kind
        for one in actions_of(kind):
            if one.read:
                reads.add(one.action)
            else:
                (changes.setdefault(setting_name(one.setting), set()) if one.setting else mine).add(one.action)
    return policy_document(
        reads, _filled(changes), snapshots=False, marks_retained=marks_retained, kinds=kinds.values()
    )


def _filled(changes: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """A statement without actions is refused by IAM."""
    return {name: actions for name, actions in changes.items() if actions}


def aws_policy(settings: Settings | None) -> dict[str, Any]:
    if settings is None:
        return policy()
    ours = {service_of_resource(one.resource) for one in settings.sources.values() if one.collector == ACK}
    return policy(ours or None, marks_retained=settings.section(AckSettings).mark_retained)
