"""Reader of EC2 resources by filter, which does not fail for missing ids and returns tags. An id missing from all pages
is absent, because a page that can't be read raises."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.client.paging import require_list
from workers.providers.aws.errors import AwsError
from workers.providers.aws.model import AwsClient, AwsResource

MAX_FILTER_VALUES: Final = 200
"""Values per filter."""

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ec2Reader:
    """`operation` is the describe call in snake case, `key` the list in its response, `filter_by` the filter for ids,
    `parse` makes a resource of one item."""

    operation: str
    key: str
    filter_by: str
    parse: Callable[[Item], AwsResource]
    # DescribeNatGateways has another name for the argument.
    filters: str = "Filters"
    paged: bool = True

    async def read(self, client: AwsClient, ids: Sequence[str]) -> dict[str, AwsResource]:
        found = {one.id: one async for one in self.matching(client, self.filter_by, ids)}
        if not found.keys() <= set(ids):
            # A response to another request proves nothing absent.
            action = operation_names("ec2", self.operation).action
            raise AwsError("unreadable", action, "OtherIds", "the answer has resources that were not asked for")
        return found

    async def list_all(self, client: AwsClient, keys: Sequence[str]) -> AsyncIterator[AwsResource]:
        async for found in self.matching(client, "tag-key", keys):
            yield found

    async def matching(self, client: AwsClient, name: str, values: Sequence[str]) -> AsyncIterator[AwsResource]:
        """Resources for which that filter matches one of the values."""
        async for item in matching(client, self.operation, self.key, name, values, self.filters, paged=self.paged):
            yield self.parse(item)


async def matching(
    client: AwsClient, operation: str, key: str, name: str, values: Sequence[str], filters: str = "Filters", *,
    paged: bool = True,
) -> AsyncIterator[Item]:  # fmt: skip
    for part in chunks(values, MAX_FILTER_VALUES):
        arguments = {filters: [{"Name": name, "Values": part}]}
        if not paged:
            for item in require_list(await client.call("ec2", operation, **arguments), key, "ec2", operation):
                yield item
            continue
        async for page in client.pages("ec2", operation, key, **arguments):
            for item in page:
                yield item


def chunks(values: Sequence[str], size: int) -> Iterable[list[str]]:
    return (list(values[first : first + size]) for first in range(0, len(values), size))


def tags_of(item: Item) -> dict[str, str]:
    return {tag["Key"]: tag.get("Value", "") for tag in item.get("Tags") or ()}
