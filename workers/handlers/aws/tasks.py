"""Which tasks are done for an object: what its annotation chooses of those that settings allow, else the settings; and
what sets tasks apart. Pure: annotations and settings go in."""

from collections.abc import Collection, Mapping
from typing import Final

from service.contract.aws import EXTERNAL_RESOURCE_TASKS, TASKS, Task
from service.settings.aws import AwsSettings
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.owners import Unclear

NOWHERE: Final = frozenset[Task](kind.task for kind in KINDS if not kind.in_vpc)
"""Tasks whose resources are in no VPC, so that only their tag says whose they are."""


def apart(tasks: Collection[Task]) -> bool:
    """Whether everything that they remove is in a VPC, which tells it apart from a namesake's."""
    return not NOWHERE & {*tasks}


def tasks_of(annotations: Mapping[str, str], settings: AwsSettings) -> tuple[Task, ...]:
    """In their own order, whatever theirs is in the annotation: the stages know what comes first. Raises Unclear: who
    may annotate an object is not who decides what may be removed at all."""
    said = annotations.get(EXTERNAL_RESOURCE_TASKS)
    if said is None:
        return tuple(task for task in TASKS if task in settings.tasks)
    words, allowed = [word.strip() for word in said.split(",")], ", ".join(settings.allowed)
    for word in words:
        if word not in TASKS:
            what = f"names a task {word!r}" if word else "names an empty task"
            raise Unclear(f"annotation {EXTERNAL_RESOURCE_TASKS} {what}; allowed: {allowed}")
        if word not in settings.allowed:
            raise Unclear(
                f"annotation {EXTERNAL_RESOURCE_TASKS} names task {word}, which the setting aws.allowed_tasks does not "
                f"allow; allowed: {allowed}"
            )
    return tuple(task for task in TASKS if task in words)
