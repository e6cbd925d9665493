"""Stale finalizers: finalizers of Knell that no declared source uses, left from a source with another collector.

They result from changed settings and do not mean that consent was withdrawn or that the object was released.
"""

from collections.abc import Collection, Iterable

from service.settings.sources import SourceSettings
from service.sources.registry import known_finalizers, source_named


def stale_finalizer(finalizers: Collection[str], resource: str, sources: Iterable[SourceSettings]) -> str:
    """A finalizer of Knell on the object that no source of its resource uses; empty where there is none."""
    used = {source_named(source.collector).finalizer for source in sources if source.resource == resource}
    return next((name for name in known_finalizers() if name in finalizers and name not in used), "")


def stale_finalizer_reason(finalizer: str, wanted: str) -> str:
    return (
        f"it has our finalizer {finalizer}, of a collector that no source of its resource has any more, and not "
        f"{wanted}; give its source that collector again until it is released, or remove the finalizer manually"
    )
