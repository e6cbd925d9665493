"""Writes and removes the tag `knell.dev/retained` through the tagging API, for resources that have no tag calls of
their own. It takes ARNs, so each resource is read first; one without a known ARN can't be tagged."""

from collections.abc import Mapping
from typing import Any, Final

from service.contract.kept import RETAINED_TAG
from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.errors import AwsError, categorize, sanitize
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.model import AwsClient
from workers.providers.aws.services import TAGGING, tag_calls_of

TRANSIENT: Final = frozenset({"throttled", "unreachable", "unreadable"})
"""Categories of errors that are raised; others are recorded."""


async def write_by_arn(client: AwsClient, kind: AwsKind, id_: str, value: str) -> AwsError | None:
    """The error, if it could not be tagged. Raises transient errors."""
    calls = tag_calls_of(TAGGING)
    return await _change(client, kind, id_, calls.add, calls.added(RETAINED_TAG, value))


async def remove_by_arn(client: AwsClient, kind: AwsKind, id_: str, value: str) -> AwsError | None:
    """The same for the removal; the value was just read."""
    calls = tag_calls_of(TAGGING)
    return await _change(client, kind, id_, calls.remove, calls.removed(RETAINED_TAG, value))


async def _change(
    client: AwsClient, kind: AwsKind, id_: str, operation: str, arguments: Mapping[str, Any]
) -> AwsError | None:  # fmt: skip
    action = operation_names(TAGGING, operation).action
    try:
        found = (await kind.read(client, [id_])).get(id_)
        if found is None or found.state in kind.absent_states:
            return AwsError("gone", action, "NoResource", "it does not exist")
        if not found.arn:
            return AwsError("unsupported", action, "NoArn", "its ARN is not known")
        named = {tag_calls_of(TAGGING).ids: [found.arn]}
        answer = await client.call(TAGGING, operation, **named, **arguments)
    except AwsError as error:
        if error.what in TRANSIENT:
            raise
        return error
    return _refused(answer, action)


def _refused(answer: Mapping[str, Any], action: str) -> AwsError | None:
    """The tagging API reports what it could not change in a successful answer."""
    for failed in (answer.get("FailedResourcesMap") or {}).values():
        code, message = str(failed.get("ErrorCode") or "Failed"), str(failed.get("ErrorMessage") or "")
        what = categorize(code, int(failed.get("StatusCode") or 0), message)
        error = AwsError("denied" if what == "credentials" else what, action, code, sanitize(message))
        if error.what in TRANSIENT:
            raise error
        return error
    return None
