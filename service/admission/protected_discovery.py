"""Discovery of the protected resources that a cluster serves. What could not be read is named, because there may be
protected objects in it."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from service.admission.api_discovery import discover_groups
from service.admission.protected_resources import ProtectedResources
from service.kubernetes import KubernetesClient, ServedResource


class UnreadPart(msgspec.Struct, frozen=True):
    """A part of the cluster that could not be read, and why."""

    what: str
    why: str


class ServedProtectedResource(NamedTuple):
    """`services` are those whose annotations protect its objects."""

    served: ServedResource
    services: tuple[str, ...]


class ProtectedDiscovery(NamedTuple):
    resources: list[ServedProtectedResource]
    unread: list[UnreadPart]


async def discover_protected(
    cluster: KubernetesClient,
    protected: ProtectedResources,
    of_group: Callable[[str], bool] = lambda group: True,
) -> ProtectedDiscovery:
    """Of the groups that `of_group` accepts. Raises ClusterError if the list of groups can't be read."""
    declared = {resource.partition(".")[2] for resource in protected.declared}

    def wanted(group: str) -> bool:
        return of_group(group) and (group in declared or bool(protected.services(f"any.{group}")))

    found = await discover_groups(cluster, wanted)
    resources = [ServedProtectedResource(one, protected.services(one.resource)) for one in found.resources]
    return ProtectedDiscovery(
        sorted((one for one in resources if one.services), key=lambda one: (one.served.group, one.served.plural)),
        [UnreadPart("API discovery", why) for why in found.unknown],
    )
