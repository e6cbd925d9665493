"""Search and removal of the tag `knell.dev_retained` on Azure resources, when a decision to keep them is lifted.
Every resource is read first, in a group that the settings name: a tag of another object's decision stays."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from service.contract.kept import KeepDecision
from service.sources.azure import RETAINED
from workers.handlers.kept_resources import OTHERS, TaggedResource, TagRemoval, TagSearch
from workers.providers.azure.claims import ClaimJudges
from workers.providers.azure.errors import AzureError
from workers.providers.azure.kinds import AzureKind
from workers.providers.azure.model import AzureScope

if TYPE_CHECKING:
    from workers.providers.azure.calls import AzureCalls


class AzureRetainedTags:
    """Implements `RetainedTags`. `kinds` are those of the provider by name; `judges` know the groups of the settings;
    `calling` returns calls that draw their own tokens."""

    def __init__(
        self, kinds: Mapping[str, AzureKind], judges: ClaimJudges, calling: "Callable[[AzureScope], AzureCalls]"
    ) -> None:
        self._kinds, self._judges, self._calling = kinds, judges, calling

    async def remove(self, decision: KeepDecision, chosen: Sequence[KeepDecision]) -> AsyncIterator[TagRemoval]:
        tagged = [(one.kind, one.id) for one in decision.resources if not one.tag]
        if not tagged and not decision.remark:
            return
        where = self._scope(decision.place)
        if where is None:
            for kind, one in tagged or [("", OTHERS)]:
                yield TagRemoval(kind=kind, id=one, failed=self._unknown(decision.place))
            return
        calls = self._calling(where)
        if decision.remark:
            # The decision may not name all tagged resources.
            names = dict.fromkeys(name for judge in self._judges.judges for name in judge.tagged_names(decision))
            named = [(kind.name, where.id(kind.type, name)) for name in names for kind in self._kinds.values()]
            tagged = list(dict.fromkeys([*tagged, *named]))
        for kind_name, one in tagged:
            yield await self._freed(calls, kind_name, one, chosen)

    async def find(self, place: str, known: Sequence[KeepDecision]) -> TagSearch:
        """By the providers' own lists, because Resource Graph lags."""
        del known
        where = self._scope(place)
        if where is None:
            return TagSearch(place=place, found=[], unread=[self._unknown(place)])
        calls, found, unread = self._calling(where), list[TaggedResource](), list[str]()
        for kind in self._kinds.values():
            try:
                async for page in calls.pages(kind):
                    for one in map(kind.shown, page):
                        if value := _value(one.tags):
                            id_ = where.id(kind.type, one.name)
                            found.append(TaggedResource(kind=kind.name, id=id_, value=value))
            except AzureError as error:
                unread.append(f"{kind.name}: {error}")
        return TagSearch(place=place, found=found, unread=unread)

    def _scope(self, place: str) -> AzureScope | None:
        """Group and identity come from the settings only."""
        scopes = (scope for judge in self._judges.judges for scope in judge.scopes)
        return next((scope for scope in scopes if scope.place == place), None)

    def _unknown(self, place: str) -> str:
        subscription, group = place.split("/")[1:3]
        settings = " or ".join(dict.fromkeys(judge.setting for judge in self._judges.judges)) or "the settings"
        return f"{settings} names no group {group} in subscription {subscription}, so nothing is looked for there"

    async def _freed(self, calls: "AzureCalls", kind_name: str, id_: str, chosen: Sequence[KeepDecision]) -> TagRemoval:
        kind, name = self._kinds.get(kind_name), id_.rpartition("/")[2]
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
