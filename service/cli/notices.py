"""What a person has to know of a source at a glance: trouble, a feature that is off, what it holds, a tripped guard.
The same lines stand below `knell sources list` and in `knell status`."""

from service.cli import output
from service.contract.traits import traits_of
from service.engine.views.sources import SourceView
from service.engine.witnesses import is_until_accepted
from service.settings import Settings


def feature_off(view: SourceView, settings: Settings) -> str:
    """The feature that the source's collector needs and that is off; empty where there is none."""
    declared = settings.sources.get(view.name)
    feature = traits_of(declared.collector).feature if declared is not None else ""
    return "" if settings.features.on(feature) else feature


def told(view: SourceView, settings: Settings) -> list[str]:
    """What a person has to know of a source, a line for each thing."""
    lines: list[str] = []
    if feature := feature_off(view, settings):
        lines.append(
            f"The feature {feature} is off: source {view.name} marks nothing, and what is already going with our "
            f"finalizer waits. `features: {{{feature}: true}}` in the settings switches it on."
        )
    if view.problem:
        since = f" since {output.moment(view.problem_since)}" if view.problem_since else ""
        lines.append(f"Source {view.name} is in trouble{since}: {view.problem}")
    if view.held:
        ways = f"`knell sources release {view.name}`"
        if is_until_accepted(view.held_why):
            ways = f"`knell sources drop {view.name}` forgets them"
        elif view.mode == "observe":
            ways += f" believes it, `knell sources drop {view.name}` forgets them"
        else:
            ways += " goes on"
        lines.append(f"Source {view.name} holds {objects_of(view.held)}: {view.held_why}. {ways}.")
    if view.guard_tripped is not None:
        lines.append(f"The guard of {view.name} holds new deletions since {output.moment(view.guard_tripped)}.")
    if not view.declared:
        lines.append(
            f"Source {view.name} is remembered, but the settings do not declare it. Was it renamed or removed? "
            f"Deletions in its name that are still open (`knell held list`) go on when it is declared again, by this "
            f"name; `knell sources drop {view.name}` forgets it."
        )
    return lines


def objects_of(count: int) -> str:
    return "1 object" if count == 1 else f"{count} objects"


def are(count: int) -> str:
    return "is" if count == 1 else "are"
