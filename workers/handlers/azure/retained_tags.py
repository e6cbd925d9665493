"""Search and removal of the tag `knell.dev_retained` on Azure resources, when a decision to keep them is lifted.
Every resource is read first, in the group that the settings name: a tag of another object's decision stays."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from service.contract.azure import RETAINED, resource_name
from service.contract.kept import KeepDecision
from service.settings import AzureNodes, AzureSettings
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.kept_tagging import place_of
from workers.handlers.azure.kinds import KINDS, AzureKind
from workers.handlers.azure.model import AzureScope
from workers.handlers.kept_resources import OTHERS, TaggedResource, TagRemoval, TagSearch

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.handlers.azure.calls import AzureCalls

_KIND: Final = {kind.name: kind for kind in KINDS}


class AzureRetainedTags:
    """Implements `RetainedTags`. `calling` returns calls that draw their own tokens."""

    def __init__(self, settings: AzureSettings, calling: "Callable[[AzureScope], AzureCalls]") -> None:
        self._settings, self._calling = settings, calling

    async def remove(self, decision: KeepDecision, chosen: Sequence[KeepDecision]) -> AsyncIterator[TagRemoval]:
        tagged = [(one.kind, one.id) for one in decision.resources if not one.tag]
        if not tagged and not decision.remark:
            return
        nodes = self._nodes(decision.place)
        if nodes is None:
            for kind, one in tagged or [("", OTHERS)]:
                yield TagRemoval(kind=kind, id=one, failed=_unknown(decision.place))
            return
        calls = self._calling(AzureScope.of(nodes))
        if decision.remark:
            # The decision may not name all tagged resources, but all of them have the same name.
            named = [(kind.name, calls.where.id(kind.type, resource_name(decision.name))) for kind in KINDS]
            tagged = list(dict.fromkeys([*tagged, *named]))
        for kind_name, one in tagged:
            yield await _freed(calls, kind_name, one, chosen)

    async def find(self, place: str, known: Sequence[KeepDecision]) -> TagSearch:
        """By the providers' own lists, because Resource Graph lags."""
        del known
        nodes = self._nodes(place)
        if nodes is None:
            return TagSearch(place=place, found=[], unread=[_unknown(place)])
        calls, found, unread = self._calling(AzureScope.of(nodes)), list[TaggedResource](), list[str]()
        for kind in KINDS:
            try:
                async for page in calls.pages(kind):
                    for one in map(kind.shown, page):
                        if value := _value(one.tags):
                            id_ = calls.where.id(kind.type, one.name)
                            found.append(TaggedResource(kind=kind.name, id=id_, value=value))
            except AzureError as error:
                unread.append(f"{kind.name}: {error}")
        return TagSearch(place=place, found=found, unread=unread)

    def _nodes(self, place: str) -> AzureNodes | None:
        """Group and identity come from the settings only."""
        return next((one for some in self._settings.nodes.values() for one in some if place_of(one) == place), None)


async def _freed(calls: "AzureCalls", kind_name: str, id_: str, chosen: Sequence[KeepDecision]) -> TagRemoval:
    kind, name = _KIND.get(kind_name), id_.rpartition("/")[2]
    if kind is None or calls.where.id(kind.type, name) != id_.lower():
        return TagRemoval(kind=kind_name, id=id_, failed="no resource of a known kind in the group of the record")
    try:
        return await _untagged(calls, kind, name, id_, chosen)
    except AzureError as error:
        return TagRemoval(kind=kind_name, id=id_, failed=str(error))


async def _untagged(
    calls: "AzureCalls", kind: AzureKind, name: str, id_: str, chosen: Sequence[KeepDecision]
) -> TagRemoval:
    found = await calls.read(kind, name)
    value = _value(found.tags) if found is not None else ""
    if not value:
        return TagRemoval(kind=kind.name, id=id_)
    if not any(decision.wrote_tag(value) for decision in chosen):
        return TagRemoval(kind=kind.name, id=id_, others=value)
    try:
        await calls.untag(kind, name, {RETAINED: value})
    except AzureError as error:
        if error.what != "gone":
            raise
    return TagRemoval(kind=kind.name, id=id_, removed=True)


def _value(tags: Mapping[str, str]) -> str:
    """Azure compares names of tags without case."""
    return next((value for name, value in tags.items() if name.lower() == RETAINED), "")


def _unknown(place: str) -> str:
    subscription, group = place.split("/")[1:3]
    return f"azure.nodes names no group {group} in subscription {subscription}, so nothing is looked for there"
