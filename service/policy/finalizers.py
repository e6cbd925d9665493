"""Finalizers of ours that no declared source stands for: what is left of a source that had another collector.

Nobody may conclude from such a one that consent was withdrawn, or that the object is released: only settings changed.
"""

from collections.abc import Collection, Iterable

from service.contract.traits import FINALIZERS, traits_of
from service.settings.sources import SourceSettings


def astray(finalizers: Collection[str], resource: str, sources: Iterable[SourceSettings]) -> str:
    """One of the object's finalizers that is ours and of no source of its resource; empty where there is none."""
    used = {traits_of(source.collector).finalizer for source in sources if source.resource == resource}
    return next((name for name in FINALIZERS if name in finalizers and name not in used), "")


def astray_words(finalizer: str, wanted: str) -> str:
    return (
        f"it has our finalizer {finalizer}, of a collector that no source of its resource has any more, and not "
        f"{wanted}; give its source that collector again until it is released, or take the finalizer off by hand"
    )
