"""Reader of load balancers and target groups. A describe call that names a missing one fails as a whole, and tags need
a call of their own; ids missing from a list of several pages are therefore read by name."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from workers.providers.aws.client.paging import require_list
from workers.providers.aws.errors import AwsError
from workers.providers.aws.model import AwsClient, AwsResource
from workers.providers.aws.reading.ec2 import Item, chunks

MAX_IDS: Final = 20
"""Names per DescribeTags, and ARNs per describe call."""

PAGE_SIZE: Final = 400

Tags = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ElbReader:
    """`ids` is the argument for ids, `id` the field of an item with its own; `tag_ids` and `tag_id` are those of
    DescribeTags; `parse` makes a resource of an item and its tags."""

    service: str
    operation: str
    key: str
    ids: str
    id: str
    tag_ids: str
    tag_id: str
    parse: Callable[[Item, Tags], AwsResource]
    # Pages of the last list, by account and region: only a single page proves what it lacks.
    pages: dict[tuple[str, str], int] = field(default_factory=dict)

    async def read(self, client: AwsClient, ids: Sequence[str]) -> dict[str, AwsResource]:
        items = await self._named(client, ids)
        return {found.id: found async for found in self._with_tags(client, list(items.values()))}

    async def exists(self, client: AwsClient, ids: Sequence[str]) -> dict[str, AwsResource]:
        """The ids that exist, without tags; efficient when most are gone."""
        items = await self._missing_among(client, ids)
        return {name: self.parse(item, {}) for name, item in items.items()}

    async def list_all(self, client: AwsClient, keys: Sequence[str]) -> AsyncIterator[AwsResource]:
        """All resources of the account in the region: there is no filter. Changes between two pages can hide a
        resource, so a list of more than one page is read twice; tags are read only for what is new."""
        del keys
        seen = set[str]()
        for _ in range(2):
            count = 0
            async for page in self._listed(client):
                count += 1
                fresh = [item for item in page if item[self.id] not in seen]
                seen.update(item[self.id] for item in fresh)
                async for found in self._with_tags(client, fresh):
                    yield found
            if count <= 1:
                return

    async def _named(self, client: AwsClient, ids: Sequence[str]) -> dict[str, Item]:
        found: dict[str, Item] = {}
        for part in chunks(ids, MAX_IDS):
            try:
                found |= await self._asked(client, part)
            except AwsError as error:
                if error.what != "gone":
                    raise
                if len(part) > 1:
                    return await self._missing_among(client, ids)
        return found

    async def _missing_among(self, client: AwsClient, ids: Sequence[str]) -> dict[str, Item]:
        """A single page is a consistent list and proves what it lacks. With several pages, deletions can hide others,
        so only a read by name is proof."""
        found: dict[str, Item] = {}
        if len(ids) > 1 and self.pages.get(_account_and_region(client), 1) <= 1:
            wanted, count = frozenset(ids), 0
            async for page in self._listed(client):
                count += 1
                found |= {item[self.id]: item for item in page if item[self.id] in wanted}
            if count <= 1:
                return found
        for one in ids:
            if one in found:
                continue
            try:
                found |= await self._asked(client, [one])
            except AwsError as error:
                if error.what != "gone":
                    raise
        return found

    async def _asked(self, client: AwsClient, ids: list[str]) -> dict[str, Item]:
        """Even a few ids may span pages: one missing from the first page is not absent yet."""
        pages = client.pages(self.service, self.operation, self.key, **{self.ids: ids})
        return {item[self.id]: item async for page in pages for item in page}

    async def _listed(self, client: AwsClient) -> AsyncIterator[list[dict[str, Any]]]:
        count = 0
        async for page in client.pages(self.service, self.operation, self.key, PageSize=PAGE_SIZE):
            count += 1
            yield page
        self.pages[_account_and_region(client)] = count

    async def _with_tags(self, client: AwsClient, items: Sequence[Item]) -> AsyncIterator[AwsResource]:
        by_id = {item[self.id]: item for item in items}
        for part in chunks(list(by_id), MAX_IDS):
            for name, tags in (await self._tags(client, part)).items():
                yield self.parse(by_id[name], tags)

    async def _tags(self, client: AwsClient, ids: list[str]) -> dict[str, Tags]:
        """By id; a resource deleted since it was described must not hide the others, and is omitted."""
        try:
            answer = await client.call(self.service, "describe_tags", **{self.tag_ids: ids})
        except AwsError as error:
            if error.what != "gone":
                raise
            if len(ids) == 1:
                return {}
            half = len(ids) // 2
            return await self._tags(client, ids[:half]) | await self._tags(client, ids[half:])
        descriptions = require_list(answer, "TagDescriptions", self.service, "describe_tags")
        told = {one[self.tag_id]: one.get("Tags") or () for one in descriptions}
        if untold := [one for one in ids if one not in told]:
            # Without its tags it would count as unowned and be left behind.
            said = f"the answer lacks {len(untold)} of {len(ids)} that were asked for, {untold[0]} first"
            raise AwsError("unreadable", "elasticloadbalancing:DescribeTags", "NoTags", said)
        return {one: {tag["Key"]: tag.get("Value", "") for tag in told[one]} for one in ids}


def _account_and_region(client: AwsClient) -> tuple[str, str]:
    return client.account, client.scope.region
