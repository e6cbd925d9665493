"""Tasks of an object: those that its annotation chooses among the allowed ones, else those in the settings. Pure."""

from collections.abc import Collection, Mapping

from service.sources.capa import EXTERNAL_RESOURCE_TASKS, TASKS, AwsSettings, Task
from workers.collectors.capa.capa_object import UnusableObject
from workers.collectors.capa.kinds import TASKS_OUTSIDE_VPC


def all_in_vpc(tasks: Collection[Task]) -> bool:
    """Whether everything that they remove is in a VPC, which tells it apart from a namesake's."""
    return not TASKS_OUTSIDE_VPC & {*tasks}


def tasks_of(annotations: Mapping[str, str], settings: AwsSettings) -> tuple[Task, ...]:
    """In a fixed order, whatever the annotation's: stages decide what comes first. Raises UnusableObject: an annotation
    can't choose more than the settings allow."""
    said = annotations.get(EXTERNAL_RESOURCE_TASKS)
    if said is None:
        return tuple(task for task in TASKS if task in settings.tasks)
    words, allowed = [word.strip() for word in said.split(",")], ", ".join(settings.allowed)
    for word in words:
        if word not in TASKS:
            what = f"names a task {word!r}" if word else "names an empty task"
            raise UnusableObject(f"annotation {EXTERNAL_RESOURCE_TASKS} {what}; allowed: {allowed}")
        if word not in settings.allowed:
            raise UnusableObject(
                f"annotation {EXTERNAL_RESOURCE_TASKS} names task {word}, which the setting aws.allowed_tasks does not "
                f"allow; allowed: {allowed}"
            )
    return tuple(task for task in TASKS if task in words)
