"""Finds the tag `knell.dev/retained` on AWS resources, and removes it when a decision to keep them is lifted. Every
resource is read first, in the account of the decision: the tag of another object's decision stays."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from service.contract.kept import RETAINED_TAG, KeepDecision
from workers.handlers.kept_resources import OTHERS, TaggedResource, TagRemoval, TagSearch
from workers.providers.aws.errors import AwsError, NoAccess
from workers.providers.aws.kinds.declaration import AwsKind, ListResources
from workers.providers.aws.model import AwsClient, AwsClients, AwsResource, CallScope
from workers.providers.aws.reading.ec2 import chunks
from workers.providers.aws.retained_tag_calls import remove_retained_tag

MAX_READ: Final = 100
"""Resources read before their tags are removed, so that each read is a few seconds old at most."""

_NOT_LISTED: Final = "such resources are found by identifier only, and can't be searched for the tag"


class AwsRetainedTags:
    """Implements the RetainedTags of the handlers. `kinds` are those of the provider, by name; it may be extended."""

    def __init__(self, clients: AwsClients, kinds: Mapping[str, AwsKind]) -> None:
        self._clients, self._kinds = clients, kinds

    async def remove(self, decision: KeepDecision, chosen: Sequence[KeepDecision]) -> AsyncIterator[TagRemoval]:
        tagged = [(one.kind, one.id) for one in decision.resources if not one.tag]
        if not tagged and not decision.remark:
            return
        try:
            client = await self._client(decision.place, _scope(decision))
        except (NoAccess, AwsError) as error:
            for kind, one in tagged or [("", OTHERS)]:
                yield TagRemoval(kind=kind, id=one, failed=str(error))
            return
        for name in dict.fromkeys(kind for kind, _ in tagged):
            ids = [one for kind, one in tagged if kind == name]
            async for removal in self._of_kind(client, name, ids, chosen):
                yield removal
        if decision.remark:
            known = frozenset(tagged)
            async for removal in self._unrecorded(client, known, decision.remark, chosen):
                yield removal

    async def find(self, place: str, known: Sequence[KeepDecision]) -> TagSearch:
        """Uses the identities of the stored decisions, and the process's own credentials if none of them gives
        access."""
        own, unread = CallScope(source="", namespace="", region=place.split("/")[2]), list[str]()
        for scope in dict.fromkeys([*map(_scope, known), own]):
            try:
                client = await self._client(place, scope)
            except (NoAccess, AwsError) as error:
                unread.append(str(error))
            else:
                return await self._search(client, place)
        return TagSearch(place=place, found=[], unread=unread)

    async def _client(self, place: str, scope: CallScope) -> AwsClient:
        """Raises NoAccess, also if the credentials belong to another account."""
        return await self._clients.client(scope, account=place.split("/")[1], patient=True)

    async def _of_kind(
        self, client: AwsClient, name: str, ids: Sequence[str], chosen: Sequence[KeepDecision]
    ) -> AsyncIterator[TagRemoval]:  # fmt: skip
        kind = self._kinds.get(name)
        if kind is None:
            for one in ids:
                yield TagRemoval(kind=name, id=one, failed="a resource of a kind that this version does not know")
            return
        for part in chunks(ids, MAX_READ):
            try:
                found = await kind.read(client, part)
                removals = [one async for one in _remove_tags(client, kind, part, found, chosen)]
            except (NoAccess, AwsError) as error:
                removals = [TagRemoval(kind=name, id=one, failed=str(error)) for one in part]
            for removal in removals:
                yield removal

    async def _unrecorded(
        self, client: AwsClient, known: frozenset[tuple[str, str]], remark: str, chosen: Sequence[KeepDecision]
    ) -> AsyncIterator[TagRemoval]:
        """Resources that carry the decision's tag but are missing from its record, because they could not all be
        listed."""
        for kind in self._kinds.values():
            if kind.list_all is None:
                # Its resources are named by a decision or by none: they are found by identifier only.
                if any(name == kind.name for name, _ in known):
                    failed = f"the record may not name all of them ({remark}), and {_NOT_LISTED}"
                    yield TagRemoval(kind=kind.name, id=OTHERS, failed=failed)
                continue
            try:
                found = [one async for one in _listed(client, kind.list_all, kind)]
            except (NoAccess, AwsError) as error:
                failed = f"the record may not name all of them ({remark}), and they can't be listed: {error}"
                yield TagRemoval(kind=kind.name, id=OTHERS, failed=failed)
                continue
            ours = [one.id for one in found if any(each.wrote_tag(one.tags[RETAINED_TAG]) for each in chosen)]
            async for removal in self._of_kind(
                client, kind.name, [one for one in ours if (kind.name, one) not in known], chosen
            ):
                yield removal

    async def _search(self, client: AwsClient, place: str) -> TagSearch:
        found, unread = list[TaggedResource](), list[str]()
        if unlisted := [kind.name for kind in self._kinds.values() if kind.list_all is None]:
            unread.append(f"{', '.join(unlisted)}: {_NOT_LISTED}")
        for kind in self._kinds.values():
            if kind.list_all is None:
                continue
            try:
                found += [
                    TaggedResource(kind=kind.name, id=one.id, value=one.tags[RETAINED_TAG])
                    async for one in _listed(client, kind.list_all, kind)
                ]
            except (NoAccess, AwsError) as error:
                unread.append(f"{kind.name}: {error}")
        return TagSearch(place=place, found=found, unread=unread)


def _scope(decision: KeepDecision) -> CallScope:
    region = decision.place.split("/")[2]
    return CallScope(source=decision.source, namespace=decision.namespace, region=region, identity=decision.identity)


async def _remove_tags(
    client: AwsClient, kind: AwsKind, ids: Sequence[str], found: dict[str, AwsResource], chosen: Sequence[KeepDecision]
) -> AsyncIterator[TagRemoval]:
    by_value = dict[str, list[str]]()
    for one in ids:
        value = (
            found[one].tags.get(RETAINED_TAG, "") if one in found and found[one].state not in kind.absent_states else ""
        )
        if not value:
            yield TagRemoval(kind=kind.name, id=one)
        elif any(decision.wrote_tag(value) for decision in chosen):
            by_value.setdefault(value, []).append(one)
        else:
            yield TagRemoval(kind=kind.name, id=one, others=value)
    for value, some in by_value.items():
        for one, error in (await remove_retained_tag(client, kind, some, value)).items():
            yield TagRemoval(kind=kind.name, id=one, removed=error is None, failed=str(error or ""))


async def _listed(client: AwsClient, list_all: ListResources, kind: AwsKind) -> AsyncIterator[AwsResource]:
    """Uses describe calls: the tagging API lags behind and also lists deleted resources."""
    async for one in list_all(client, [RETAINED_TAG]):
        if one.tags.get(RETAINED_TAG) and one.state not in kind.absent_states:
            yield one
