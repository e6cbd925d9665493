"""Reading EC2's resources: by filters, which never fail for what is missing, and tags come with them.
What an answer of many pages lacks is absent, because a page that can't be had is an error and not an end."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from workers.handlers.aws.answers import list_of
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.model import Calls, Found
from workers.handlers.aws.operations import operation_of

AT_ONCE: Final = 200
"""Values that one filter takes."""

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ec2Reader:
    """`operation` is the describe call in snake case, `key` where its answer has the list, `filter_by` the filter that
    takes ids, `form` makes a resource of one item."""

    operation: str
    key: str
    filter_by: str
    form: Callable[[Item], Found]
    # DescribeNatGateways names its filters otherwise than all others.
    filters: str = "Filters"
    paged: bool = True

    async def read(self, calls: Calls, ids: Sequence[str]) -> dict[str, Found]:
        found = {one.id: one async for one in self.matching(calls, self.filter_by, ids)}
        if not found.keys() <= set(ids):
            # What is missing in the answer to another question is not absent.
            action = operation_of("ec2", self.operation).action
            raise AwsError("unreadable", action, "OtherIds", "the answer has resources that were not asked for")
        return found

    async def list_all(self, calls: Calls, keys: Sequence[str]) -> AsyncIterator[Found]:
        async for found in self.matching(calls, "tag-key", keys):
            yield found

    async def matching(self, calls: Calls, name: str, values: Sequence[str]) -> AsyncIterator[Found]:
        """Those of which the filter of that name matches one of the values."""
        async for item in matching(calls, self.operation, self.key, name, values, self.filters, paged=self.paged):
            yield self.form(item)


async def matching(
    calls: Calls, operation: str, key: str, name: str, values: Sequence[str], filters: str = "Filters", *,
    paged: bool = True,
) -> AsyncIterator[Item]:  # fmt: skip
    for part in chunks(values, AT_ONCE):
        arguments = {filters: [{"Name": name, "Values": part}]}
        if not paged:
            for item in list_of(await calls.call("ec2", operation, **arguments), key, "ec2", operation):
                yield item
            continue
        async for page in calls.pages("ec2", operation, key, **arguments):
            for item in page:
                yield item


def chunks(values: Sequence[str], size: int) -> Iterable[list[str]]:
    return (list(values[first : first + size]) for first in range(0, len(values), size))


def tags_of(item: Item) -> dict[str, str]:
    return {tag["Key"]: tag.get("Value", "") for tag in item.get("Tags") or ()}
