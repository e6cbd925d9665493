"""Puts the worker's side of the clusters together from settings: planners, gate, release, and what is told back.
Whoever starts a worker brings the clusters that it has reached, and handlers and planners of its own."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from service.contract.traits import traits_of
from service.engine.endings import dropped_before, endings
from service.engine.guard import Guard
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.kept import KeptMemory
from service.engine.lease_witness import Witness
from service.engine.views.reading import texts
from service.engine.withdrawal import withdraw
from service.kubernetes import Cluster, Sightings
from service.settings import Settings
from workers.handlers.notes import silent
from workers.handlers.nothing import Nothing
from workers.handlers.objects import About, Collector
from workers.handlers.places import Places, Witnessed
from workers.handlers.protocol import Handler, Planner
from workers.handlers.registry import Registry
from workers.handlers.release import LiveRelease
from workers.judging.consent import LiveConsent
from workers.judging.inspection import Inspector
from workers.judging.keeping import KeepingStep
from workers.judging.planner import LivePlanner
from workers.judging.records import Records
from workers.reporting.teller import Teller

CLUSTERS = "clusters"
"""Where the watch side keeps which uid each name of a cluster has always had."""


def registry_for(
    settings: Settings,
    clusters: Mapping[str, Cluster],
    installation: Installation,
    *,
    handlers: Iterable[Handler] = (),
    collectors: Iterable[Collector] = (),
    detached: Mapping[str, Planner] | None = None,
    sightings: Sightings | None = None,
    places: Places | None = None,
    errands: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (),
) -> Registry:
    """`clusters` are those of the settings that are reached, by name; it may be filled later, and until then the
    sources of the missing ones hold.

    `detached` are planners of events that come without a cluster: only for them nothing live is looked at.
    `sightings` are those of a watch side in the same process; `places` those that handlers and collectors know, too.
    `errands` go on beside the work.
    """
    apart = {name: planner for name, planner in (detached or {}).items() if name not in settings.sources}
    places = places or places_in(settings, clusters, installation)
    records, guard = Records(installation), Guard(installation)
    teller = Teller(installation, settings.feedback, places, records)
    listens = settings.feedback.events or settings.feedback.conditions
    tell = teller.tell if listens else silent
    inspector = Inspector(settings, places, partial(Inventory, installation), sightings)
    every = {collector.name: collector for collector in (Nothing(), *collectors)}
    planner = LivePlanner(inspector, settings.policy, guard, every, tell, partial(dropped_before, installation))
    consent = LiveConsent(
        inspector, records, settings.policy, partial(withdraw, installation), collectors=every, detached=apart,
        tell=tell,
    )  # fmt: skip

    async def forget(about: About) -> str:
        memory = Inventory(installation, about.source)
        if traits_of(settings.sources[about.source].collector).swept:
            (ending,) = await endings(installation, [about.deletion])
            known = await memory.recall_one(about.uid) if ending.kept else None
            if known is not None:
                # Else a sweep would find what stays, and remove it for want of an owner.
                await memory.remember({about.uid: replace(known, kept=ending.kept)})
                return ending.kept
        await memory.forget([about.uid])
        return ""

    release = LiveRelease(
        settings.sources, settings.policy, places, records.about, forget, features=settings.features, detached=apart,
        tell=tell, keep=KeepingStep(settings.sources, places, every, KeptMemory(installation)).keep,
    )  # fmt: skip
    return Registry(
        [release, *handlers],
        {**apart, **dict.fromkeys(settings.sources, planner)},
        consent=consent,
        listener=teller if listens else None,
        closing=[consent.aclose, places.aclose],
        errands=errands,
    )


def places_in(settings: Settings, clusters: Mapping[str, Cluster], installation: Installation) -> Places:
    """The reached clusters; each is held to the uid that settings or the watch side's memory say it has."""
    key = installation.keys.of(0, CLUSTERS)

    async def remembered() -> dict[str, str]:
        return texts(await installation.caller.command("HGETALL", key))

    async def witness(asked: Witnessed) -> str:
        return await Witness(installation, asked.cluster, asked.uid, settings.watch.namespace, asked.leases).doubt()

    return Places(settings, clusters, remembered, witness)
