"""Notices about a source: its problem, a feature that is off, what it holds, a tripped guard.
`knell sources list` and `knell status` show the same lines."""

from service.cli import output
from service.engine.lease_counters import is_restore_reason
from service.engine.views.sources import SourceView
from service.settings import Settings
from service.sources.registry import source_named


def feature_off(view: SourceView, settings: Settings) -> str:
    """The feature that the source's collector needs and that is off; else empty."""
    declared = settings.sources.get(view.name)
    feature = source_named(declared.collector).feature if declared is not None else ""
    return "" if settings.features.on(feature) else feature


def notices_of(view: SourceView, settings: Settings) -> list[str]:
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
        if is_restore_reason(view.held_why):
            ways = f"`knell sources drop {view.name}` forgets them"
        elif view.mode == "observe":
            ways += f" believes it, `knell sources drop {view.name}` forgets them"
        else:
            ways += " goes on"
        lines.append(f"Source {view.name} holds {count_objects(view.held)}: {view.held_why}. {ways}.")
    if view.guard_tripped is not None:
        lines.append(f"The guard of {view.name} holds new deletions since {output.moment(view.guard_tripped)}.")
    if not view.declared:
        lines.append(
            f"Source {view.name} is remembered, but the settings do not declare it. Was it renamed or removed? "
            f"Deletions in its name that are still open (`knell held list`) go on when it is declared again, by this "
            f"name; `knell sources drop {view.name}` forgets it."
        )
    return lines


def count_objects(count: int) -> str:
    return "1 object" if count == 1 else f"{count} objects"


def is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"
