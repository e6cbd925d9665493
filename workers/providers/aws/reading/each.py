"""Reader of resources of which each takes calls of its own. One that can't be read, because its own policy denies that
for instance, does not hide the others."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from workers.providers.aws.errors import AwsError, PartlyRead
from workers.providers.aws.model import AwsClient, AwsResource

AT_ONCE: Final = 8
"""Resources that are read concurrently, so that the first read is not too old when the last one is done."""

ReadOne = Callable[[AwsClient, str], Awaitable[AwsResource | None]]
"""One resource by its id; None if a read says that it does not exist. AWS's code for that may be raised, too."""


def read_each(
    read: ReadOne, at_once: int = AT_ONCE
) -> Callable[[AwsClient, Sequence[str]], Awaitable[dict[str, AwsResource]]]:
    """A `ReadResources` of a function for one of them. It raises PartlyRead, and NoAccess."""

    async def read_all(client: AwsClient, ids: Sequence[str]) -> dict[str, AwsResource]:
        slots = asyncio.Semaphore(at_once)

        async def read_one(one: str) -> AwsResource | AwsError | None:
            async with slots:
                try:
                    return await read(client, one)
                except AwsError as error:
                    return error

        answers = await asyncio.gather(*(read_one(one) for one in ids), return_exceptions=True)
        found, errors = dict[str, AwsResource](), dict[str, AwsError]()
        for one, answer in zip(ids, answers, strict=True):
            match answer:
                case AwsResource():
                    found[one] = answer
                case AwsError(what="gone") | None:
                    pass
                case AwsError():
                    errors[one] = answer
                case BaseException():
                    raise answer
        if errors:
            raise PartlyRead(found, errors)
        return found

    return read_all
