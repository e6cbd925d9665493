"""The look at the object itself: is it the one that is meant, is it going, is it ours to act on?
An object with our finalizer must be there and say so; an observed one must be known to the inventory and be gone."""

import asyncio
from collections.abc import Callable

import msgspec

from service.contract import Undecodable
from service.contract.traits import traits_of
from service.engine.inventory import Inventory, Remembered
from service.kubernetes import Live, NotFound, NotServed, Sightings
from service.policy.finalizers import astray, astray_words
from service.settings import Settings, SourceSettings
from workers.handlers.objects import About, Facts
from workers.handlers.places import Place, Places


class Objection(msgspec.Struct, frozen=True):
    """Why nothing is done. With `again` it may pass, with `waits` it does so without a person; `withdrawn` is for good:
    consent once given is gone."""

    reason: str
    again: bool = False
    withdrawn: bool = False
    waits: bool = False


class Inspector:
    """`memory` gives a source's inventory; `sightings` are those of a watch side in the same process."""

    def __init__(
        self,
        settings: Settings,
        places: Places,
        memory: Callable[[str], Inventory],
        sightings: Sightings | None = None,
    ) -> None:
        self._settings, self._places, self._memory = settings, places, memory
        self._sightings = sightings if sightings is not None else Sightings()

    def collector_of(self, source: str) -> str:
        """Its name, empty for a source that is not declared."""
        declared = self._settings.sources.get(source)
        return declared.collector if declared is not None else ""

    async def look(self, about: About, *, metadata_only: bool = False, destroys: bool = True) -> Facts | Objection:
        """`metadata_only` is for who needs nothing of its text. For who `destroys` nothing on the strength of it, what
        the watch side saw a moment ago will do. Raises ClusterError where the API server can't be asked: that is no
        finding."""
        source = self._settings.sources.get(about.source)
        if source is None:
            known = ", ".join(sorted(self._settings.sources)) or "none"
            return Objection(f"source {about.source!r} is not declared (there is: {known})", again=True)
        if about.resource != source.resource:
            return Objection(f"source {about.source} is about {source.resource}, not about {about.resource}")
        place = self._places.of(about.source)
        if place is None:
            return Objection(f"this process has no way to the cluster of source {about.source}", again=True)
        try:
            if about.orphan:
                return await self._orphaned(about, source, place)
            if source.mode == "finalizer":
                sighted = None if destroys or not metadata_only else self._sighted(about, source)
                return await self._marked(about, source, place, sighted, metadata_only=metadata_only)
            return await self._observed(about, source, place)
        except NotServed as error:
            return Objection(
                f"{about.resource} is not served, so nothing is known of {about.object}: {error}", again=True
            )

    # ---- with our finalizer

    def _sighted(self, about: About, source: SourceSettings) -> Live | None:
        """What speaks against the object is found by reading it."""
        seen = self._sightings.take(about.cluster, about.resource, about.uid)
        return seen if seen is not None and self._not_marked(about, seen, source) is None else None

    def _not_marked(self, about: About, live: Live | None, source: SourceSettings) -> Objection | None:
        finalizer = traits_of(source.collector).finalizer
        found = not_marked(about, live, finalizer)
        if found is None or live is None or not live.going or live.uid != about.uid:
            return found
        other = astray(live.finalizers, about.resource, self._settings.sources.values())
        # Nobody withdrew anything: its source has another collector by now, and may have its own again.
        return Objection(f"{about.object}: {astray_words(other, finalizer)}", again=True) if other else found

    async def _marked(
        self, about: About, source: SourceSettings, place: Place, sighted: Live | None, *, metadata_only: bool
    ) -> Facts | Objection:
        marks = place.marks(about.namespace) if about.namespace else None
        live = sighted or await place.get(about.resource, about.namespace, about.name, metadata_only=metadata_only)
        objection = self._not_marked(about, live, source)
        # The uid proves the cluster; what is missing may be missing because this is another one.
        fault = await place.fault(about.cluster, fresh=objection is not None)
        if fault is not None:
            return Objection(fault, again=True)
        # One that is missing in a cluster restored from a backup was not released by anybody.
        withdrawn = objection is not None and objection.withdrawn
        if withdrawn and (doubt := await self._places.doubt(about.source, about.cluster, about.namespace)):
            return Objection(doubt, again=True)
        if objection is not None or live is None:
            return objection or Objection(f"there is no {about.object}")
        place.note(live)
        return Facts(
            about=about, settings=source, labels=live.labels, annotations=live.annotations,
            namespace_annotations=await asyncio.shield(marks) if marks is not None else {},
            features=self._settings.features, live=live,
        )  # fmt: skip

    # ---- found by a sweep

    async def _orphaned(self, about: About, source: SourceSettings, place: Place) -> Facts | Objection:
        """There is no object, and none may come to life: while one has that name, nothing is orphaned."""
        if not traits_of(source.collector).swept:
            return Objection(f"source {about.source} has collector {source.collector}, which has no sweep")
        live = await place.get(about.resource, about.namespace, about.name, metadata_only=True)
        fault = await place.fault(about.cluster)
        if fault is not None:
            return Objection(fault, again=True)
        if live is not None:
            return Objection(f"{about.object} lives, so that what has its name is no orphan", withdrawn=True)
        if fault := await _undefined(about, place) or await self._places.doubt(about.source, about.cluster):
            return Objection(fault, again=True)
        if selective := chooses(source):
            return Objection(f"source {about.source} chooses by {selective}, which an orphan has not", again=True)
        return Facts(
            about=about, settings=source, labels={}, annotations={}, namespace_annotations={},
            features=self._settings.features, recognises=about.data,
        )  # fmt: skip

    # ---- observed

    async def _observed(self, about: About, source: SourceSettings, place: Place) -> Facts | Objection:
        try:
            known = await self._memory(about.source).recall_one(about.uid)
        except Undecodable as error:
            return Objection(str(error), again=True)
        if known is None:
            return Objection(f"the inventory of source {about.source} holds no object with uid {about.uid}")
        if known.held:
            return Objection(f"its absence is not believed: {known.held}", again=True)
        if known.fault and not known.data:
            # Without this it would own nothing, and what it owned would be forgotten.
            return Objection(f"what it owns was never recognised: {known.fault}", again=True)
        # What the inventory saw counts, not what the event says.
        about = msgspec.structs.replace(about, namespace=known.namespace, name=known.name, at=known.at)
        live = await place.get(about.resource, about.namespace, about.name)
        if (fault := await place.fault(about.cluster)) is not None:
            return Objection(fault, again=True)
        if live is not None and live.uid == about.uid:
            words = f"{about.object} is still there" + (", on its way out" if live.going else "")
            return Objection(words, again=True, waits=live.going)
        if (fault := await _undefined(about, place)) is not None:
            return Objection(fault, again=True)
        if not known.gone:
            # A 404 alone proves nothing: its CRD may have been replaced, which only who watches could notice.
            words = f"the absence of {about.object} is not proven by the watch side yet"
            return Objection(words, again=True, waits=True)
        marks = await self._namespace_marks(about, place, known)
        if isinstance(marks, Objection):
            return marks
        # Asked last, after all that may be missing in a cluster that was restored from a backup.
        if fault := await self._places.doubt(about.source, about.cluster, about.namespace):
            return Objection(fault, again=True)
        return Facts(
            about=about, settings=source, labels=known.labels, annotations=known.annotations,
            namespace_annotations=marks, features=self._settings.features, recognises=known.data,
            namesake=live is not None,
        )  # fmt: skip

    async def _namespace_marks(self, about: About, place: Place, known: Remembered) -> dict[str, str] | Objection:
        """Of the live Namespace; of one that went with its objects, what the inventory kept."""
        if not about.namespace:
            return {}
        try:
            return await asyncio.shield(place.marks(about.namespace))
        except NotFound:
            kept = await self._memory(about.source).marks(about.namespace)
        if kept is not None and kept.at >= known.namespace_at:
            return kept.annotations
        if known.namespace_annotations is not None:
            return known.namespace_annotations
        return Objection(f"its Namespace {about.namespace} is gone, and no record says how it was marked", again=True)


def chooses(source: SourceSettings) -> str:
    """By what of their objects a source chooses; empty where it takes all. Nothing tells whether it would have taken
    the one that an orphan belonged to."""
    keys = ("selector", "opt_in", "opt_out")
    return " and ".join(key for key in keys if getattr(source, key).strip())


def not_marked(about: About, live: Live | None, finalizer: str) -> Objection | None:
    """Why a live object is not the one that goes with its source's finalizer, or None."""
    if live is None:
        return Objection(f"there is no {about.object}, although our finalizer should hold it", withdrawn=True)
    if live.uid != about.uid:
        return Objection(f"{about.object} has uid {live.uid}; the one with uid {about.uid} is gone", withdrawn=True)
    if not live.going:
        # The event is not true yet; should it become so, its record must not be in the way.
        return Objection(f"{about.object} lives: it has no deletionTimestamp", again=True)
    if finalizer not in live.finalizers:
        return Objection(f"{about.object} does not have our finalizer {finalizer}", withdrawn=True)
    return None


async def _undefined(about: About, place: Place) -> str | None:
    """Asked after the object: one that its CRD took with it was missing only when that was going already."""
    state = await place.crd_state(about.resource)
    if state not in ("built-in", "established"):
        return f"the CRD of {about.resource} is {state}, so the absence of {about.object} proves nothing"
    return None
