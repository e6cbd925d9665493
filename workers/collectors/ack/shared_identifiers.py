"""Search for other objects that name the same resource: such a resource is not one object's to delete. Objects of the
same resource are listed in all namespaces, in every cluster that has a source for them."""

from collections.abc import Iterator
from contextlib import aclosing
from typing import Final, NamedTuple

from service.coalesced_reads import CoalescedReads
from service.kubernetes import KubeObject
from service.settings import Settings
from service.sources.ack import ACK, service_of_resource
from service.sources.ack_objects import AckObject, read_ack_object
from service.sources.declaration import Unrecognisable
from workers.collectors.ack.types import UnnamedResource, identifier_of, type_of
from workers.handlers.source_clusters import SourceCluster, SourceClusters

MAX_OBJECTS: Final = 50_000
"""Objects of one resource in one cluster."""


class TooManyObjects(Exception):
    """Not all objects could be compared; the message says why."""


class NamedResource(NamedTuple):
    """One object, and where the resource is that it names; empty if it does not say. `going` is the object itself,
    without its document, if it is being deleted."""

    uid: str
    label: str
    account: str
    region: str
    cluster: str
    going: KubeObject | None


class _ListKey(NamedTuple):
    place: SourceCluster
    resource: str


Index = dict[str, list[NamedResource]]
"""By ARN and by identifier."""


class SharedIdentifiers:
    """Callers that ask at the same time share one list; it begins after they asked."""

    def __init__(self, settings: Settings, places: SourceClusters) -> None:
        self._settings, self._places = settings, places
        self._lists = CoalescedReads.by_key(self._list)

    async def others(self, resource: str, uid: str, wanted: AckObject, identifier: str) -> list[NamedResource]:
        """Other objects that name the resource. Raises ClusterError and TooManyObjects."""
        found = dict[str, NamedResource]()
        for place in self._clusters(resource):
            index = await self._lists.read(_ListKey(place, resource))
            named = [*index.get(identifier, ()), *(index.get(wanted.arn, ()) if wanted.arn else ())]
            # An object whose status names neither may still mean this one.
            found |= {
                one.uid: one
                for one in named
                if one.uid != uid and one.account in ("", wanted.account) and one.region in ("", wanted.region)
            }
        return list(found.values())

    async def aclose(self) -> None:
        await self._lists.aclose()

    def _clusters(self, resource: str) -> Iterator[SourceCluster]:
        found: list[SourceCluster] = []
        for name, source in self._settings.sources.items():
            if (source.collector, source.resource) != (ACK, resource):
                continue
            place = self._places.of(name)
            if place is None:
                raise TooManyObjects(f"this process has no way to the cluster of source {name}, whose objects count")
            if place not in found:
                found.append(place)
        yield from found

    async def _list(self, key: _ListKey) -> Index:
        index, count = Index(), 0
        service = service_of_resource(key.resource)
        served = await key.place.served(key.resource)
        async with aclosing(key.place.client.pages(served, None)) as pages:
            async for page in pages:
                count += len(page.items)
                if page.unreadable or count > MAX_OBJECTS:
                    why = page.unreadable[0] if page.unreadable else f"there are more than {MAX_OBJECTS}"
                    raise TooManyObjects(f"the {key.resource} of cluster {key.place.name} can't all be compared: {why}")
                for item in page.items:
                    label = f"{key.resource} {item.namespace}/{item.name} of cluster {key.place.name}"
                    try:
                        said = read_ack_object(item.raw)
                    except Unrecognisable as error:
                        raise TooManyObjects(f"{label} can't be compared: {error}") from None
                    going = item.without_raw() if item.going else None
                    one = NamedResource(item.uid, label, said.account, said.region, key.place.name, going)
                    for name in _names(service, said):
                        index.setdefault(name, []).append(one)
        return index


def _names(service: str, said: AckObject) -> set[str]:
    """What an object names, by its ARN and by its spec, which may disagree."""
    names = {said.arn} - {""}
    for arn in {said.arn, ""}:
        try:
            names.add(identifier_of(type_of(service, said.kind), arn, said.account, said.fields))
        except UnnamedResource:
            continue
    return names
