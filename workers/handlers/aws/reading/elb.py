"""Reading balancers and target groups: a describe call that names a missing one fails as a whole, and tags are asked
for apart. Which are there is found out in few calls; of a list of many pages, what it lacks is asked for by name."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from workers.handlers.aws.answers import list_of
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.model import Calls, Found
from workers.handlers.aws.reading.ec2 import Item, chunks

AT_ONCE: Final = 20
"""Names that DescribeTags takes, and ARNs that the others take."""

PAGE: Final = 400

Tags = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ElbReader:
    """`ids` is the argument that takes ids, `id` where an item has its own; `tag_ids` and `tag_id` are those of
    DescribeTags; `form` makes a resource of an item and its tags."""

    service: str
    operation: str
    key: str
    ids: str
    id: str
    tag_ids: str
    tag_id: str
    form: Callable[[Item, Tags], Found]
    # How many pages the last list had, by account and region: a hint whether one proves what it lacks.
    pages: dict[tuple[str, str], int] = field(default_factory=dict)

    async def read(self, calls: Calls, ids: Sequence[str]) -> dict[str, Found]:
        items = await self._named(calls, ids)
        return {found.id: found async for found in self._with_tags(calls, list(items.values()))}

    async def exists(self, calls: Calls, ids: Sequence[str]) -> dict[str, Found]:
        """Those that are there, without tags, when most are expected to be gone."""
        items = await self._missing_among(calls, ids)
        return {name: self.form(item, {}) for name, item in items.items()}

    async def list_all(self, calls: Calls, keys: Sequence[str]) -> AsyncIterator[Found]:
        """Everything of the account in the region: there is no filter. What comes and goes between two pages can push
        something out of both, so a list of more than one is made twice, and only what is new then is asked its tags."""
        del keys
        seen = set[str]()
        for _ in range(2):
            count = 0
            async for page in self._listed(calls):
                count += 1
                fresh = [item for item in page if item[self.id] not in seen]
                seen.update(item[self.id] for item in fresh)
                async for found in self._with_tags(calls, fresh):
                    yield found
            if count <= 1:
                return

    async def _named(self, calls: Calls, ids: Sequence[str]) -> dict[str, Item]:
        found: dict[str, Item] = {}
        for part in chunks(ids, AT_ONCE):
            try:
                found |= await self._asked(calls, part)
            except AwsError as error:
                if error.what != "gone":
                    raise
                if len(part) > 1:
                    return await self._missing_among(calls, ids)
        return found

    async def _missing_among(self, calls: Calls, ids: Sequence[str]) -> dict[str, Item]:
        """One page is made at once, and proves what it lacks. Of several, what goes meanwhile can push others out of
        all of them: then only the answer to a single name is proof, and a list is but a detour."""
        found: dict[str, Item] = {}
        if len(ids) > 1 and self.pages.get(_where(calls), 1) <= 1:
            wanted, count = frozenset(ids), 0
            async for page in self._listed(calls):
                count += 1
                found |= {item[self.id]: item for item in page if item[self.id] in wanted}
            if count <= 1:
                return found
        for one in ids:
            if one in found:
                continue
            try:
                found |= await self._asked(calls, [one])
            except AwsError as error:
                if error.what != "gone":
                    raise
        return found

    async def _asked(self, calls: Calls, ids: list[str]) -> dict[str, Item]:
        """Also of a few the answer may have pages: what is missing from the first is not absent yet."""
        pages = calls.pages(self.service, self.operation, self.key, **{self.ids: ids})
        return {item[self.id]: item async for page in pages for item in page}

    async def _listed(self, calls: Calls) -> AsyncIterator[list[dict[str, Any]]]:
        count = 0
        async for page in calls.pages(self.service, self.operation, self.key, PageSize=PAGE):
            count += 1
            yield page
        self.pages[_where(calls)] = count

    async def _with_tags(self, calls: Calls, items: Sequence[Item]) -> AsyncIterator[Found]:
        by_id = {item[self.id]: item for item in items}
        for part in chunks(list(by_id), AT_ONCE):
            for name, tags in (await self._tags(calls, part)).items():
                yield self.form(by_id[name], tags)

    async def _tags(self, calls: Calls, ids: list[str]) -> dict[str, Tags]:
        """By id; one that has vanished since it was described must not hide the rest, and is left out."""
        try:
            answer = await calls.call(self.service, "describe_tags", **{self.tag_ids: ids})
        except AwsError as error:
            if error.what != "gone":
                raise
            if len(ids) == 1:
                return {}
            half = len(ids) // 2
            return await self._tags(calls, ids[:half]) | await self._tags(calls, ids[half:])
        descriptions = list_of(answer, "TagDescriptions", self.service, "describe_tags")
        told = {one[self.tag_id]: one.get("Tags") or () for one in descriptions}
        if untold := [one for one in ids if one not in told]:
            # Without tags it would be nobody's, and be left behind.
            said = f"the answer lacks {len(untold)} of {len(ids)} that were asked for, {untold[0]} first"
            raise AwsError("unreadable", "elasticloadbalancing:DescribeTags", "NoTags", said)
        return {one: {tag["Key"]: tag.get("Value", "") for tag in told[one]} for one in ids}


def _where(calls: Calls) -> tuple[str, str]:
    return calls.account, calls.whose.region
