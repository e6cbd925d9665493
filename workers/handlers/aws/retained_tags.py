"""Finds the tag `knell.dev/retained` on AWS resources and removes it when a decision to keep them is lifted.
Every resource is read first, in the account of the decision: the tag of another object's decision stays."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from service.contract.kept import RETAINED_TAG, Decision
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.kinds import KINDS, kind_named
from workers.handlers.aws.marking import unmark
from workers.handlers.aws.model import Calls, Found, Kind, Reach, Whose
from workers.handlers.aws.reading.ec2 import chunks
from workers.handlers.memory import OTHERS, TaggedResource, TagRemoval, TagSearch

AT_ONCE: Final = 100
"""Resources that are read before the tags of these are taken off: what was read is a few seconds old at most."""


class AwsRetainedTags:
    """Implements the RetainedTags of the handlers."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def remove(self, decision: Decision, chosen: Sequence[Decision]) -> AsyncIterator[TagRemoval]:
        tagged = [(one.kind, one.id) for one in decision.resources if not one.tag]
        if not tagged and not decision.remark:
            return
        try:
            calls = await self._calls(decision.place, _whose(decision))
        except (NoAccess, AwsError) as error:
            for kind, one in tagged or [("", OTHERS)]:
                yield TagRemoval(kind=kind, id=one, failed=str(error))
            return
        for name in dict.fromkeys(kind for kind, _ in tagged):
            ids = [one for kind, one in tagged if kind == name]
            async for removal in _of_kind(calls, name, ids, chosen):
                yield removal
        if decision.remark:
            known = frozenset(tagged)
            async for removal in _unnamed(calls, known, decision.remark, chosen):
                yield removal

    async def find(self, place: str, known: Sequence[Decision]) -> TagSearch:
        """By the identities of its records, and as the process itself where none of them leads there."""
        own, unread = Whose(source="", namespace="", region=place.split("/")[2]), list[str]()
        for whose in dict.fromkeys([*map(_whose, known), own]):
            try:
                calls = await self._calls(place, whose)
            except (NoAccess, AwsError) as error:
                unread.append(str(error))
            else:
                return await _search(calls, place)
        return TagSearch(place=place, found=[], unread=unread)

    async def _calls(self, place: str, whose: Whose) -> Calls:
        """Raises NoAccess, also where these are the credentials of another account."""
        return await self._reach.calls(whose, account=place.split("/")[1], patient=True)


def _whose(decision: Decision) -> Whose:
    region = decision.place.split("/")[2]
    return Whose(source=decision.source, namespace=decision.namespace, region=region, identity=decision.identity)


async def _of_kind(
    calls: Calls, name: str, ids: Sequence[str], chosen: Sequence[Decision]
) -> AsyncIterator[TagRemoval]:  # fmt: skip
    kind = kind_named(name)
    if kind is None:
        for one in ids:
            yield TagRemoval(kind=name, id=one, failed="a resource of a kind that this version does not know")
        return
    for part in chunks(ids, AT_ONCE):
        try:
            found = await kind.read(calls, part)
            removals = [one async for one in _freed(calls, kind, part, found, chosen)]
        except (NoAccess, AwsError) as error:
            removals = [TagRemoval(kind=name, id=one, failed=str(error)) for one in part]
        for removal in removals:
            yield removal


async def _freed(
    calls: Calls, kind: Kind, ids: Sequence[str], found: dict[str, Found], chosen: Sequence[Decision]
) -> AsyncIterator[TagRemoval]:
    by_value = dict[str, list[str]]()
    for one in ids:
        value = found[one].tags.get(RETAINED_TAG, "") if one in found and found[one].state not in kind.absent else ""
        if not value:
            yield TagRemoval(kind=kind.name, id=one)
        elif any(decision.wrote(value) for decision in chosen):
            by_value.setdefault(value, []).append(one)
        else:
            yield TagRemoval(kind=kind.name, id=one, others=value)
    for value, some in by_value.items():
        for one, error in (await unmark(calls, kind, some, value)).items():
            yield TagRemoval(kind=kind.name, id=one, removed=error is None, failed=str(error or ""))


async def _unnamed(
    calls: Calls, known: frozenset[tuple[str, str]], remark: str, chosen: Sequence[Decision]
) -> AsyncIterator[TagRemoval]:
    """The resources that a decision wrote its tag on without naming them: it could not list them all."""
    for kind in KINDS:
        try:
            found = [one async for one in _listed(calls, kind)]
        except (NoAccess, AwsError) as error:
            failed = f"the record may not name all of them ({remark}), and they can't be listed: {error}"
            yield TagRemoval(kind=kind.name, id=OTHERS, failed=failed)
            continue
        ours = [one.id for one in found if any(each.wrote(one.tags[RETAINED_TAG]) for each in chosen)]
        async for removal in _of_kind(calls, kind.name, [one for one in ours if (kind.name, one) not in known], chosen):
            yield removal


async def _search(calls: Calls, place: str) -> TagSearch:
    found, unread = list[TaggedResource](), list[str]()
    for kind in KINDS:
        try:
            found += [
                TaggedResource(kind=kind.name, id=one.id, value=one.tags[RETAINED_TAG])
                async for one in _listed(calls, kind)
            ]
        except (NoAccess, AwsError) as error:
            unread.append(f"{kind.name}: {error}")
    return TagSearch(place=place, found=found, unread=unread)


async def _listed(calls: Calls, kind: Kind) -> AsyncIterator[Found]:
    """By describe calls: the tagging API is late, and also lists what is gone."""
    async for one in kind.list_all(calls, [RETAINED_TAG]):
        if one.tags.get(RETAINED_TAG) and one.state not in kind.absent:
            yield one
