"""GetResource of Cloud Control: whether a resource exists, its tags and its ARN. Properties that can't be read prove
nothing, and a resource whose tags can't be read is not taken for one without tags."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from workers.providers.aws.cloud_control_ids import CloudControlId, arn_of, refusal, split_cloud_control_id
from workers.providers.aws.errors import AwsError
from workers.providers.aws.model import AwsClient, AwsResource
from workers.providers.aws.reading.each import read_each

NAME: Final = "aws.cloud-control"
ACTION: Final = "cloudformation:GetResource"
LARGEST: Final = 1024 * 1024
"""Bytes of properties. AWS's limit is a quarter of that; more is no answer of Cloud Control."""

AT_ONCE: Final = 40
"""Reads at a time. Each runs a handler, which may take seconds, and the first one must not be too old when the last one
is done. The tokens of the lane limit how many are made."""

PROFILE_TAGS: Final = "iam.ListInstanceProfileTags"

_INSTANCE: Final = "AWS::EC2::Instance"
_PROFILE: Final = "AWS::IAM::InstanceProfile"
_NULL: Final = msgspec.Raw(b"null")
_NOT_FOUND: Final = "ResourceNotFoundException"


class _PropertyTag(msgspec.Struct, frozen=True, rename="pascal"):
    key: str
    value: str | None = ""


_PropertyTags = list[_PropertyTag] | dict[str, str | None] | None


class _InstanceState(msgspec.Struct, frozen=True, rename="pascal"):
    name: str = ""


class _CommonProperties(msgspec.Struct, frozen=True, rename="pascal"):
    """What types have in common. Everything else may be secret, and is not kept."""

    tags: _PropertyTags = None
    hosted_zone_tags: _PropertyTags = None
    file_system_tags: _PropertyTags = None
    arn: msgspec.Raw = _NULL
    # MemoryDB's name for it.
    upper_arn: msgspec.Raw = msgspec.field(name="ARN", default=_NULL)
    # An instance's; of other types it may be anything.
    state: msgspec.Raw = _NULL


_decode: Final = msgspec.json.Decoder(_CommonProperties).decode
_decode_state: Final = msgspec.json.Decoder(_InstanceState | None).decode


async def _read(client: AwsClient, id_: str) -> AwsResource | None:
    try:
        asked = split_cloud_control_id(id_)
    except ValueError as error:
        raise AwsError("unsupported", ACTION, "InvalidId", str(error)) from None
    if why := refusal(asked, client.account, client.scope.region):
        raise AwsError("unsupported", ACTION, "NotAsked", why)
    try:
        answer = await client.call("cloudcontrol", "get_resource", TypeName=asked.type, Identifier=asked.identifier)
    except AwsError as error:
        if error.code == _NOT_FOUND:
            return None
        if error.what == "gone":
            # A code of another service, which says nothing about the resource.
            raise AwsError("other", error.action, error.code, error.message) from None
        raise
    found = parse_resource(id_, asked, answer, arn_of(asked, client.account, client.scope.region))
    if asked.type == _PROFILE:
        return msgspec.structs.replace(found, tags=await _profile_tags(client, asked.identifier))
    return found


async def _profile_tags(client: AwsClient, name: str) -> dict[str, str]:
    """The properties of an instance profile have no tags."""
    answer = await client.call("iam", "list_instance_profile_tags", InstanceProfileName=name)
    tags = answer.get("Tags")
    if not isinstance(tags, list) or answer.get("IsTruncated"):
        raise AwsError("unreadable", "iam:ListInstanceProfileTags", "NoTags", "the list of tags is not complete")
    return {tag["Key"]: tag.get("Value") or "" for tag in tags}


read_resources: Final = read_each(_read, AT_ONCE)


def parse_resource(id_: str, asked: CloudControlId, answer: Mapping[str, Any], arn: str = "") -> AwsResource:
    """`arn` is the one that is known without the answer. Raises AwsError."""
    described = answer.get("ResourceDescription")
    text = described.get("Properties") if isinstance(described, Mapping) else None
    if described is None or not isinstance(text, str) or not text:
        raise _unreadable(asked, "the answer has no properties")
    told = answer.get("TypeName", asked.type), described.get("Identifier", asked.identifier)
    if told[0] != asked.type or not _is_same(str(told[1]), asked.identifier):
        raise _unreadable(asked, f"the answer is about {told[0]} {told[1]}")
    if len(text) > LARGEST:
        raise _unreadable(asked, f"its properties have {len(text)} characters")
    try:
        found = _decode(text)
        state = _decode_state(found.state) if asked.type == _INSTANCE else None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        # Not repeated: the text of the error may contain a value.
        raise _unreadable(asked, "its properties are no JSON object, or its tags have an unknown form") from None
    tags = _as_tags(found.tags) | _as_tags(found.hosted_zone_tags) | _as_tags(found.file_system_tags)
    return AwsResource(
        kind=NAME, id=id_, tags=tags, state=state.name if state is not None else "", arn=arn or _arn(found)
    )  # fmt: skip


def _is_same(told: str, asked: str) -> bool:
    """Some services write identifiers in lower case, and a compound one may have been asked for as JSON."""
    return told.casefold() == asked.casefold() or asked.startswith("{")


def _as_tags(tags: _PropertyTags) -> dict[str, str]:
    if tags is None:
        return {}
    pairs = tags.items() if isinstance(tags, dict) else ((one.key, one.value) for one in tags)
    return {key: value or "" for key, value in pairs}


def _arn(found: _CommonProperties) -> str:
    for raw in (found.arn, found.upper_arn):
        text = msgspec.json.decode(raw)
        if isinstance(text, str) and text.startswith("arn:"):
            return text
    return ""


def _unreadable(asked: CloudControlId, why: str) -> AwsError:
    said = f"what came back for {asked.type} {asked.identifier} can't be read: {why}"
    return AwsError("unreadable", ACTION, "UnreadableProperties", said)
