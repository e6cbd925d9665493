"""Reading balancers and target groups: a describe call that names a missing one fails as a whole, and tags are asked
for apart. Which are there is found out in few calls: by a list where that is cheaper than asking one by one."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

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
    # How many pages the last list had, by account and region: a hint what a list costs.
    pages: dict[tuple[str, str], int] = field(default_factory=dict)

    async def read(self, calls: Calls, ids: Sequence[str]) -> dict[str, Found]:
        items = await self._named(calls, ids)
        return {found.id: found async for found in self._with_tags(calls, list(items.values()))}

    async def exists(self, calls: Calls, ids: Sequence[str]) -> dict[str, Found]:
        """Those that are there, without tags, when most are expected to be gone."""
        items = await self._missing_among(calls, ids)
        return {name: self.form(item, {}) for name, item in items.items()}

    async def list_all(self, calls: Calls, keys: Sequence[str]) -> AsyncIterator[Found]:
        """Everything of the account in the region: there is no filter."""
        del keys
        async for page in self._listed(calls):
            async for found in self._with_tags(calls, page):
                yield found

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
        if len(ids) > self.pages.get(_where(calls), 1):
            wanted = frozenset(ids)
            listed = [item async for page in self._listed(calls) for item in page if item[self.id] in wanted]
            return {item[self.id]: item for item in listed}
        found: dict[str, Item] = {}
        for one in ids:
            try:
                found |= await self._asked(calls, [one])
            except AwsError as error:
                if error.what != "gone":
                    raise
        return found

    async def _asked(self, calls: Calls, ids: list[str]) -> dict[str, Item]:
        answer = await calls.call(self.service, self.operation, **{self.ids: ids})
        return {item[self.id]: item for item in answer.get(self.key, ())}

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
        told = {one[self.tag_id]: one.get("Tags") or () for one in answer.get("TagDescriptions", ())}
        return {one: {tag["Key"]: tag.get("Value", "") for tag in told.get(one, ())} for one in ids}


def _where(calls: Calls) -> tuple[str, str]:
    return calls.account, calls.whose.region
