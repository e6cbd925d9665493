"""Puts a sweep together: its passes, what they remember, and who makes them."""

from service.settings import Settings
from service.stream.installation import Installation
from service.stream.orphans import Orphans
from workers.handlers.azure.listing import Lister
from workers.handlers.places import Places
from workers.sweeps.passing import Pass
from workers.sweeps.sweeper import Sweeper


def sweeper_of(settings: Settings, installation: Installation, places: Places, lister: Lister, source: str) -> Sweeper:
    one = Pass(settings, installation, places, lister, source)
    return Sweeper(settings, places, Orphans(installation, source), source, settings.worker.name, one.run)
