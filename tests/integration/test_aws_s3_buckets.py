"""Removal of S3 buckets: emptied page by page where the settings allow it, in the right account and region, and never
on the strength of a bucket that only has the name."""

from typing import Any

import pytest

from service.contract import Blocked, Pending, Refused, Throttled
from standins.aws import AwsFault
from standins.aws.builder import AwsBuilder
from standins.aws.tags import named
from tests.integration.aws_identified import OURS, SHORT_LEASE, IdentifiedRemovalFixture, identified
from workers.handlers.protocol import NotCleared
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds import bucket_contents
from workers.providers.aws.kinds.bucket_contents import ABORT, DELETE, DELETE_OBJECTS, progress_of

__all__ = ["identified"]

BUCKET = "aws.s3-bucket"


async def s3(identified: IdentifiedRemovalFixture) -> Any:
    return await identified.cloud.builder.client("s3")


async def fill(identified: IdentifiedRemovalFixture, bucket: str, *, keys: int = 3, uploads: int = 1) -> None:
    """Two versions of every object and a delete marker on the first, and open uploads."""
    client = await s3(identified)
    await client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for number in range(keys):
        for body in (b"old", b"new"):
            await client.put_object(Bucket=bucket, Key=f"folder/a key+{number}&é", Body=body)
    await client.delete_object(Bucket=bucket, Key="folder/a key+0&é")
    for number in range(uploads):
        await client.create_multipart_upload(Bucket=bucket, Key=f"upload {number}")


async def contents(identified: IdentifiedRemovalFixture, bucket: str) -> int:
    client = await s3(identified)
    versions = await client.list_object_versions(Bucket=bucket)
    uploads = await client.list_multipart_uploads(Bucket=bucket)
    return sum(len(one) for one in (
        versions.get("Versions", ()), versions.get("DeleteMarkers", ()), uploads.get("Uploads", ()),
    ))  # fmt: skip


async def test_a_bucket_that_is_not_empty_stays_with_all_that_is_in_it_and_names_the_setting(
    identified: IdentifiedRemovalFixture,
) -> None:
    versions, uploads = [await identified.make(BUCKET) for _ in range(2)]
    await fill(identified, versions)
    await (await s3(identified)).create_multipart_upload(Bucket=uploads, Key="upload")
    before = [await contents(identified, one) for one in (versions, uploads)]
    await identified.start()
    going = await identified.go(*identified.targets(BUCKET, versions, uploads))
    record = await identified.until(going, versions, "blocked", "is not empty")
    assert "aws.empty_buckets" in record["detail"]
    assert record["held"] == "1"
    await identified.until(going, uploads, "blocked", "an open multipart upload of upload")
    assert [await contents(identified, one) for one in (versions, uploads)] == before == [7 + 1, 1]
    assert await identified.asked(DELETE, DELETE_OBJECTS, ABORT) == []


async def test_versions_markers_and_uploads_are_deleted_page_by_page_and_then_the_bucket(
    identified: IdentifiedRemovalFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_contents, "PAGE_SIZE", 3)
    monkeypatch.setattr(bucket_contents, "UPLOADS_AT_ONCE", 2)
    identified.set(empty_buckets=True)
    ours, other = [await identified.make(BUCKET) for _ in range(2)]
    for one in (ours, other):
        await fill(identified, one, keys=3, uploads=3)
    going = await identified.remove(*identified.targets(BUCKET, ours))
    assert not await identified.exists(BUCKET, ours)
    assert await contents(identified, other) == 7 + 3
    calls = await identified.asked(DELETE_OBJECTS, ABORT, DELETE)
    assert calls == [DELETE_OBJECTS] * 3 + [ABORT] * 3 + [DELETE]
    assert (await identified.job(going, ours))["verdict"] == "gone"


async def test_a_bucket_without_versions_is_emptied_too(identified: IdentifiedRemovalFixture) -> None:
    identified.set(empty_buckets=True)
    ours = await identified.make(BUCKET)
    await (await s3(identified)).put_object(Bucket=ours, Key="key", Body=b"")
    await identified.remove(*identified.targets(BUCKET, ours))
    assert not await identified.exists(BUCKET, ours)


async def test_progress_is_in_the_job_s_record_and_every_page_has_consent_of_its_own(
    identified: IdentifiedRemovalFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_contents, "PAGE_SIZE", 3)
    identified.set(empty_buckets=True)
    ours = await identified.make(BUCKET)
    await fill(identified, ours, keys=2)
    resume = ""
    for done in (3, 5):
        batch = identified.batch(BUCKET, ours, operation=DELETE_OBJECTS, resume=resume)
        found = (await identified.attempt_batch(batch))[ours]
        assert isinstance(found, Pending)
        assert batch.cleared == [batch.jobs[0].id]
        assert f"{done} versions and delete markers" in found.detail
        resume = found.resume
    stopped = identified.batch(BUCKET, ours, operation=ABORT, resume=resume, clear=NotCleared("it is wanted again"))
    assert isinstance((await identified.attempt_batch(stopped))[ours], NotCleared)
    assert await contents(identified, ours) == 1
    off = identified.batch(BUCKET, ours, operation=ABORT, resume=resume)
    identified.set(empty_buckets=False)
    back = (await identified.attempt_batch(off))[ours]
    assert isinstance(back, Pending)
    assert (str(back.lane).endswith(DELETE), off.cleared) == (True, [])
    assert progress_of("{") == progress_of("")


@pytest.mark.long
async def test_a_worker_that_is_killed_between_pages_loses_nothing_and_the_next_one_goes_on(
    identified: IdentifiedRemovalFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_contents, "PAGE_SIZE", 1)
    identified.set(empty_buckets=True)
    ours = await identified.make(BUCKET)
    await fill(identified, ours, keys=3)
    # The answer to one page is lost, too: it took effect, and no attempt knows.
    await identified.cloud.aws.set_faults(AwsFault(what="lost", action=DELETE_OBJECTS, times=1))
    running = await identified.start(**SHORT_LEASE)
    going = await identified.go(*identified.targets(BUCKET, ours))
    await identified.crash_after(running, DELETE_OBJECTS)
    await identified.engine.until_done(going)
    assert not await identified.exists(BUCKET, ours)
    assert len(await identified.asked(DELETE)) == 1


@pytest.mark.invariant(2)
async def test_a_bucket_that_is_another_s_by_now_is_not_emptied_any_further(
    identified: IdentifiedRemovalFixture,
) -> None:
    identified.set(empty_buckets=True)
    ours = await identified.make(BUCKET)
    await fill(identified, ours)
    moved = (await identified.attempt(BUCKET, ours))[ours]
    assert isinstance(moved, Pending)
    assert str(moved.lane).endswith(DELETE_OBJECTS)
    # The incarnation is recorded before the first page.
    assert moved.resume.startswith("20")
    await (await s3(identified)).put_bucket_tagging(Bucket=ours, Tagging={"TagSet": []})
    for operation in (DELETE_OBJECTS, ABORT):
        found = (await identified.attempt(BUCKET, ours, operation=operation, resume=moved.resume))[ours]
        assert isinstance(found, Refused)
    later = (await identified.attempt(BUCKET, ours, operation=DELETE_OBJECTS, resume="2001-01-01 0 0"))[ours]
    assert isinstance(later, Refused)
    assert "another bucket of that name" in later.reason
    assert await contents(identified, ours) == 8


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("AccessDenied", "Access Denied because object protected by object lock."),
        ("AccessDenied", "Mfa Authentication must be used for this request"),
    ],
)
async def test_versions_that_can_not_be_deleted_are_named_and_hold_the_bucket(
    identified: IdentifiedRemovalFixture, code: str, message: str
) -> None:
    identified.set(empty_buckets=True)
    ours = await identified.make(BUCKET)
    await fill(identified, ours)
    entry = f"<Error><Key>folder/locked</Key><Code>{code}</Code><Message>{message}</Message></Error>"
    await identified.cloud.aws.behave(undeletable=entry)
    found = (await identified.attempt(BUCKET, ours, operation=DELETE_OBJECTS))[ours]
    assert isinstance(found, Refused)
    assert "folder/locked first" in found.reason
    assert message in found.reason
    assert "Object Lock" in found.reason
    await identified.cloud.aws.behave(undeletable=entry.replace(code, "SlowDown"))
    assert isinstance((await identified.attempt(BUCKET, ours, operation=DELETE_OBJECTS))[ours], Throttled)


@pytest.mark.long
async def test_a_version_under_object_lock_holds_the_bucket(identified: IdentifiedRemovalFixture) -> None:
    identified.set(empty_buckets=True)
    client, ours = await s3(identified), named("locked")
    place = {"LocationConstraint": identified.cloud.builder.region}
    await client.create_bucket(Bucket=ours, CreateBucketConfiguration=place, ObjectLockEnabledForBucket=True)
    tags = [{"Key": key, "Value": value} for key, value in OURS.items()]
    await client.put_bucket_tagging(Bucket=ours, Tagging={"TagSet": tags})
    await client.put_object(Bucket=ours, Key="locked", Body=b"", ObjectLockLegalHoldStatus="ON")
    await identified.start()
    going = await identified.go(*identified.targets(BUCKET, ours))
    await identified.until(going, ours, "refused", "Object Lock")
    assert await identified.exists(BUCKET, ours)


@pytest.mark.invariant(1)
async def test_a_bucket_of_another_account_or_region_is_neither_absent_nor_deleted(
    identified: IdentifiedRemovalFixture,
) -> None:
    aws = identified.cloud.aws
    async with AwsBuilder(aws.address, account="999900001111") as build:
        foreign = named("foreign")
        client = await build.client("s3")
        await client.create_bucket(Bucket=foreign, CreateBucketConfiguration={"LocationConstraint": build.region})
    async with AwsBuilder(aws.address, account=identified.cloud.account, region="eu-central-1") as build:
        elsewhere = named("elsewhere")
        client = await build.client("s3")
        await client.create_bucket(Bucket=elsewhere, CreateBucketConfiguration={"LocationConstraint": build.region})
        tags = [{"Key": key, "Value": value} for key, value in OURS.items()]
        await client.put_bucket_tagging(Bucket=elsewhere, Tagging={"TagSet": tags})
    for operation in ("", "s3.GetBucketLocation"):
        found = await identified.attempt(BUCKET, foreign, elsewhere, operation=operation)
        assert isinstance(found[foreign], Refused), found
        assert isinstance(found[elsewhere], Refused | AwsError | Pending), found
    refused = (await identified.attempt(BUCKET, elsewhere))[elsewhere]
    assert isinstance(refused, Refused)
    assert "is in region eu-central-1" in refused.reason
    assert await identified.asked(DELETE) == []


async def test_a_bucket_that_is_written_to_while_it_is_deleted_is_emptied_again(
    identified: IdentifiedRemovalFixture,
) -> None:
    ours = await identified.make(BUCKET)
    await identified.cloud.aws.set_faults(
        AwsFault(what="error", action=DELETE, code="BucketNotEmpty", status=409, times=1)
    )
    found = (await identified.attempt(BUCKET, ours))[ours]
    assert isinstance(found, Blocked)
    assert found.unseen
    assert isinstance((await identified.attempt(BUCKET, ours))[ours], Pending)
