"""Traits of collectors: finalizer, opt-in annotation, required feature, resources and modes.
Every component that needs to know which finalizer a source uses reads it here."""

from collections.abc import Mapping
from typing import Final

import msgspec

from service.contract.aws import (
    AWS_CLUSTERS,
    AWS_FINALIZER,
    AWS_MANAGED_CONTROL_PLANES,
    CAPA,
    CLUSTER_PAUSED,
    DELETE_FOR_MOVE,
    EXTERNAL_RESOURCE_GC,
    EXTERNAL_RESOURCE_TASKS,
    FEATURE,
)
from service.contract.azure import KARPENTER_AZURE, NODECLAIMS
from service.contract.names import FINALIZER


class Switch(msgspec.Struct, frozen=True):
    """A third-party annotation that opts an object in or out like knell.dev/gc, with values of its own."""

    name: str
    enabled: str
    disabled: str


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """`feature` is the feature flag that must be on, `resources` are the supported ones: none means any.

    With `capi` its objects belong to Clusters of Cluster API, which may be paused or moved. A collector that does not
    `hold` never uses a finalizer; with `swept` it also has a sweep for orphans.
    """

    finalizer: str = FINALIZER
    switch: Switch | None = None
    feature: str = ""
    resources: tuple[str, ...] = ()
    observes: bool = True
    holds: bool = True
    swept: bool = False
    capi: bool = False


PLAIN: Final = Traits()
TRAITS: Final[Mapping[str, Traits]] = {
    CAPA: Traits(
        finalizer=AWS_FINALIZER,
        switch=Switch(EXTERNAL_RESOURCE_GC, enabled="true", disabled="false"),
        feature=FEATURE,
        resources=(AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES),
        observes=False,
        capi=True,
    ),
    KARPENTER_AZURE: Traits(resources=(NODECLAIMS,), holds=False, swept=True),
}

FINALIZERS: Final = tuple(dict.fromkeys((FINALIZER, *(traits.finalizer for traits in TRAITS.values()))))
"""All finalizers that Knell puts on objects."""

FOREIGN_MARKS: Final = frozenset({EXTERNAL_RESOURCE_GC, EXTERNAL_RESOURCE_TASKS, CLUSTER_PAUSED, DELETE_FOR_MOVE})
"""Third-party annotations that policy reads."""


def traits_of(collector: str) -> Traits:
    return TRAITS.get(collector, PLAIN)
