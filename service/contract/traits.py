"""What a collector's name says about the objects of its sources: their finalizer, their marks, where it may be used.
Whoever marks, judges or releases an object asks here; nobody else knows the finalizers apart."""

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
    """An annotation of somebody else that opts an object in or out, as knell.dev/gc does, in its own words."""

    name: str
    enabled: str
    disabled: str


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """`feature` is the flag that has to be on, `resources` are those that it understands: none at all means any.

    With `capi` its objects belong to Clusters of Cluster API, which may be paused, and may move elsewhere alive. One
    that does not `hold` never keeps an object from going; with `swept` it also looks for what no event told.
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
"""All that we ever put on an object."""

FOREIGN_MARKS: Final = frozenset({EXTERNAL_RESOURCE_GC, EXTERNAL_RESOURCE_TASKS, CLUSTER_PAUSED, DELETE_FOR_MOVE})
"""Annotations with a prefix of others that we go by."""


def traits_of(collector: str) -> Traits:
    return TRAITS.get(collector, PLAIN)
