"""Puts a sweep together: its passes, what they remember, and who makes them."""

from service.engine.installation import Installation
from service.engine.lease_witness import LeaseCounter
from service.engine.orphans import Orphans
from service.kubernetes import Cluster
from service.settings import Settings
from workers.handlers.azure.listing import Lister
from workers.handlers.places import Places
from workers.sweeps.passing import Pass
from workers.sweeps.sweeper import Counting, Sweeper


def sweeper_of(settings: Settings, installation: Installation, places: Places, lister: Lister, source: str) -> Sweeper:
    one = Pass(settings, installation, places, lister, source)
    orphans, counting = Orphans(installation, source), counted(settings, installation)
    return Sweeper(settings, places, orphans, source, settings.worker.name, one.run, counting)


def counted(settings: Settings, installation: Installation) -> Counting:
    """The Lease of the sweep is a witness, too: it is renewed where nobody watches."""

    def counting(cluster: Cluster, uid: str, lease: str) -> LeaseCounter:
        return LeaseCounter(installation, cluster, uid, settings.watch.namespace, lease)

    return counting
