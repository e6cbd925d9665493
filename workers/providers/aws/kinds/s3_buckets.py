"""S3 buckets, which are identified by name. Names are global, so every call states the account that must own the
bucket. One that is not empty blocks the deletion, or is emptied first (`bucket_contents`), only if the settings allow
it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from service.contract import Blocked, Refused, Verdict
from workers.providers.aws.client.paging import require_list
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.bucket_contents import (
    ABORT,
    DELETE,
    DELETE_OBJECTS,
    LIST_UPLOADS,
    LIST_VERSIONS,
    abort_uploads,
    delete_objects,
    require_empty,
)
from workers.providers.aws.kinds.declaration import AbsentResource, AwsAttempt, AwsKind, KindStep, creation_time
from workers.providers.aws.model import AwsClient, AwsResource
from workers.providers.aws.reading.each import read_each
from workers.providers.aws.reading.ec2 import tags_of

NAME: Final = "aws.s3-bucket"
_REGIONS: Final = {"": "us-east-1", "EU": "eu-west-1"}
"""Regions that GetBucketLocation does not name as they are named elsewhere."""


async def _read(client: AwsClient, name: str) -> AwsResource:
    """For an absent one AWS's error is raised, whose body says so; a response to HeadBucket has none."""
    tags: Mapping[str, str] = {}
    try:
        answer = await client.call("s3", "get_bucket_tagging", Bucket=name, ExpectedBucketOwner=client.account)
        tags = tags_of({"Tags": require_list(answer, "TagSet", "s3", "get_bucket_tagging")})
    except AwsError as error:
        if error.code != "NoSuchTagSet":
            raise
    return await _located(client, name, tags)


async def _exists(client: AwsClient, name: str) -> AwsResource:
    return await _located(client, name, {})


async def _located(client: AwsClient, name: str, tags: Mapping[str, str]) -> AwsResource:
    answer = await client.call("s3", "get_bucket_location", Bucket=name, ExpectedBucketOwner=client.account)
    region = answer.get("LocationConstraint") or ""
    made = await _creation_date(client, name)
    return AwsResource(kind=NAME, id=name, tags=tags, made=made, facts=_REGIONS.get(region, region))


async def _creation_date(client: AwsClient, name: str) -> datetime | None:
    """None for a bucket that the account's list does not show, or not yet."""
    answer = await client.call("s3", "list_buckets", Prefix=name)
    found: Sequence[Mapping[str, Any]] = require_list(answer, "Buckets", "s3", "list_buckets")
    return next((one.get("CreationDate") for one in found if one["Name"] == name), None)


async def _check_absent(_client: AwsClient, absent: Sequence[AbsentResource]) -> dict[str, Verdict]:
    """S3 may change the creation date with a bucket's settings, so another date does not prove that it is another
    bucket, unless its deletion was accepted."""
    verdicts: dict[str, Verdict] = {}
    for one in absent:
        if one.namesake is None:
            continue
        if one.namesake.made is None:
            verdicts[one.job.id] = Blocked(f"{one.job.target} exists, and is not in the list of buckets", unseen=True)
        elif not one.progress.deletes:
            verdicts[one.job.id] = Refused(
                f"{one.job.target} was created at {one.progress.incarnation} when it was planned, and by now at "
                f"{creation_time(one.namesake)}: it is another bucket of that name, or its settings were changed, "
                f"which may change the date; `knell jobs abandon` releases the object without it"
            )
    return verdicts


def _other_region(attempt: AwsAttempt) -> Refused | None:
    region, expected = attempt.resource.facts, attempt.claim.scope.region
    if region == expected:
        return None
    return Refused(f"{attempt.resource.id} is in region {region}, and its claim says {expected}: correct the object")


async def _precheck(attempt: AwsAttempt) -> Verdict | None:
    return _other_region(attempt) or await require_empty(attempt)


async def _delete_objects(attempt: AwsAttempt) -> Verdict:
    return _other_region(attempt) or await delete_objects(attempt)


async def _abort_uploads(attempt: AwsAttempt) -> Verdict:
    return _other_region(attempt) or await abort_uploads(attempt)


async def _delete(attempt: AwsAttempt) -> None:
    await attempt.client.call(
        "s3", "delete_bucket", Bucket=attempt.resource.id, ExpectedBucketOwner=attempt.client.account
    )


S3_BUCKET = AwsKind(
    name=NAME,
    service="s3",
    delete_operation=DELETE,
    check_operation="s3.GetBucketLocation",
    # Its ARN has no type, and names neither region nor account: it is found by name.
    arn=("s3", ""),
    read=read_each(_read),
    read_operations=("s3.GetBucketTagging", "s3.GetBucketLocation", "s3.ListBuckets"),
    exists=read_each(_exists),
    in_vpc=False,
    in_tagging_api=False,
    incarnation=creation_time,
    incarnation_may_change=True,
    check_absent=_check_absent,
    lookup_operations=(LIST_VERSIONS, LIST_UPLOADS),
    precheck=_precheck,
    delete=_delete,
    steps={
        DELETE_OBJECTS: KindStep(run=_delete_objects, read_operations=(LIST_VERSIONS,), setting="empty_buckets"),
        ABORT: KindStep(run=_abort_uploads, read_operations=(LIST_UPLOADS,), setting="empty_buckets"),
    },
)
