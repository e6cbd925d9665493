"""Emptying of a bucket before its deletion: all versions and delete markers, a page in each attempt, then the open
multipart uploads. What is left is read from S3 every time, so an attempt that is repeated deletes nothing twice."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from service.contract import Blocked, Refused, Throttled, Verdict
from workers.providers.aws.errors import AwsError, categorize, sanitize
from workers.providers.aws.kinds.declaration import AwsAttempt

DELETE: Final = "s3.DeleteBucket"
DELETE_OBJECTS: Final = "s3.DeleteObjects"
ABORT: Final = "s3.AbortMultipartUpload"
LIST_VERSIONS: Final = "s3.ListObjectVersions"
LIST_UPLOADS: Final = "s3.ListMultipartUploads"

PAGE_SIZE: Final = 1000
"""Versions per DeleteObjects, and per page of their list."""

UPLOADS_AT_ONCE: Final = 10
"""Uploads that one attempt aborts, each by a call of its own."""

MAX_SHOWN: Final = 100
"""Characters of a key in messages."""

_TRANSIENT: Final = frozenset({"throttled", "unreachable"})

Item = Mapping[str, Any]


class BucketProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was deleted so far, at least: what an attempt deleted that did not get to record it is not counted."""

    versions: int = 0
    uploads: int = 0

    def __str__(self) -> str:
        return f"{self.versions} versions and delete markers and {self.uploads} uploads are deleted so far"

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode()


_decoder: Final = msgspec.json.Decoder(BucketProgress)


def progress_of(resume: str) -> BucketProgress:
    """State that can't be decoded starts over."""
    try:
        return _decoder.decode(resume) if resume else BucketProgress()
    except msgspec.DecodeError:
        return BucketProgress()


async def require_empty(attempt: AwsAttempt) -> Verdict | None:
    """None if the bucket is empty; else the verdict to have it emptied first, or blocked."""
    versions = await _versions(attempt, 1)
    uploads = [] if versions else await _uploads(attempt, 1)
    if not (versions or uploads):
        return None
    first = f"the object {_shown(versions[0])}" if versions else f"an open multipart upload of {_shown(uploads[0])}"
    if not attempt.settings.empty_buckets:
        return Blocked(
            f"{attempt.resource.id} is not empty, it has {first}: empty it, or let Knell do it (setting "
            f"aws.empty_buckets), which deletes all versions of all objects for good",
            person=True,
        )
    return attempt.move_to(
        DELETE_OBJECTS if versions else ABORT, f"it is emptied first, it has {first}", resume=attempt.resume
    )


async def delete_objects(attempt: AwsAttempt) -> Verdict:
    """One page of versions and delete markers."""
    if (stop := _not_allowed(attempt)) is not None:
        return stop
    page, done = await _versions(attempt, PAGE_SIZE), progress_of(attempt.resume)
    if not page:
        return attempt.move_to(ABORT, f"no versions are left: {done}", resume=attempt.resume)
    attempt = await attempt.refreshed()
    await attempt.clear()
    named = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in page]
    answer = await attempt.client.call(
        "s3", "delete_objects", Bucket=attempt.resource.id, ExpectedBucketOwner=attempt.client.account,
        Delete={"Objects": named, "Quiet": True},
    )  # fmt: skip
    failed: Sequence[Item] = answer.get("Errors") or ()
    if failed:
        return _failure(attempt, failed)
    done = msgspec.structs.replace(done, versions=done.versions + len(page))
    return attempt.move_to(DELETE_OBJECTS, f"a page was deleted: {done}", resume=done.text)


async def abort_uploads(attempt: AwsAttempt) -> Verdict:
    """A few uploads. One that was completed meanwhile is an object by now, which the next round finds."""
    if (stop := _not_allowed(attempt)) is not None:
        return stop
    page, done = await _uploads(attempt, UPLOADS_AT_ONCE), progress_of(attempt.resume)
    if not page:
        return attempt.move_to(DELETE, f"it is empty: {done}", resume=attempt.resume)
    for one in page:
        attempt = await attempt.refreshed()
        await attempt.clear()
        try:
            await attempt.client.call(
                "s3", "abort_multipart_upload", Bucket=attempt.resource.id, Key=one["Key"], UploadId=one["UploadId"],
                ExpectedBucketOwner=attempt.client.account,
            )  # fmt: skip
        except AwsError as error:
            if error.code != "NoSuchUpload":
                raise
    done = msgspec.structs.replace(done, uploads=done.uploads + len(page))
    return attempt.move_to(ABORT, f"uploads were aborted: {done}", resume=done.text)


def _not_allowed(attempt: AwsAttempt) -> Verdict | None:
    if attempt.settings.empty_buckets:
        return None
    return attempt.move_to(DELETE, "it is not to be emptied any more", resume=attempt.resume)


async def _versions(attempt: AwsAttempt, count: int) -> list[Item]:
    """The first of them. Their list has no version of what was deleted, so its first page is always the next one."""
    answer = await attempt.client.call(
        "s3", "list_object_versions", Bucket=attempt.resource.id, MaxKeys=count,
        ExpectedBucketOwner=attempt.client.account,
    )  # fmt: skip
    found = [*(answer.get("Versions") or ()), *(answer.get("DeleteMarkers") or ())]
    return _complete(answer, attempt.resource.id, found[:count], "s3:ListBucketVersions")


async def _uploads(attempt: AwsAttempt, count: int) -> list[Item]:
    answer = await attempt.client.call(
        "s3", "list_multipart_uploads", Bucket=attempt.resource.id, MaxUploads=count,
        ExpectedBucketOwner=attempt.client.account,
    )  # fmt: skip
    found = list(answer.get("Uploads") or ())[:count]
    return _complete(answer, attempt.resource.id, found, "s3:ListBucketMultipartUploads")


def _complete(answer: Item, bucket: str, found: list[Item], action: str) -> list[Item]:
    """AWS leaves out lists that are empty, so only a response that names the bucket shows that there is nothing."""
    if bucket not in (answer.get("Name"), answer.get("Bucket")):
        raise AwsError("unreadable", action, "NoList", "the answer does not name the bucket that was listed")
    if not found and answer.get("IsTruncated"):
        raise AwsError("unreadable", action, "NoList", "the answer has nothing, and says that there is more")
    return found


def _failure(attempt: AwsAttempt, failed: Sequence[Item]) -> Verdict:
    """The rest of the page was deleted."""
    first = failed[0]
    code, message = str(first.get("Code") or "unknown"), sanitize(str(first.get("Message") or ""))
    words = (
        f"{len(failed)} versions in {attempt.resource.id} were not deleted, {_shown(first)} first: {code}: {message}"
    )
    if all(categorize(str(one.get("Code") or "")) in _TRANSIENT for one in failed):
        return Throttled(None, words)
    return Refused(
        f"{words}; look for Object Lock (a retention period or a legal hold), MFA delete, which only the root user can "
        f"satisfy, and whether s3:DeleteObjectVersion is allowed"
    )


def _shown(item: Item) -> str:
    key = sanitize(str(item.get("Key", "")))
    return key if len(key) <= MAX_SHOWN else f"{key[:MAX_SHOWN]}…"
