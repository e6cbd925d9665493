"""Checks of S3 beyond moto's: the account that must own a bucket, its region, and open multipart uploads."""

from typing import Any

from standins.aws.calls import AwsCall
from standins.aws.moto_backends import backend_of, s3_account_of
from standins.aws.responses import AwsResponse, failed, xml

_ANYWHERE = ("CreateBucket", "GetBucketLocation", "ListBuckets")
"""Actions that any region answers."""


def bucket_refusal(call: AwsCall) -> AwsResponse | None:
    """Names of buckets are global: a call on one of another account, or of another region, is refused."""
    bucket = call.text("Bucket")
    account = s3_account_of(bucket) if call.service == "s3" and bucket else ""
    if not account or call.action == "CreateBucket":
        return None
    if account != (call.text("ExpectedBucketOwner") or account) or account != call.account:
        return failed(call, "AccessDenied", "Access Denied", 403)
    region = _bucket(call).region_name
    if region != call.region and call.action not in _ANYWHERE:
        message = "The bucket you are attempting to access must be addressed using the specified endpoint."
        refused = failed(call, "PermanentRedirect", message, 301)
        return AwsResponse(301, refused.body, {**refused.headers, "x-amz-bucket-region": region}, refused.code)
    return None


def has_uploads(call: AwsCall) -> AwsResponse | None:
    """For DeleteBucket."""
    if s3_account_of(call.text("Bucket")) and _bucket(call).multiparts:
        return failed(call, "BucketNotEmpty", "The bucket you tried to delete is not empty", 409)
    return None


def list_uploads(call: AwsCall) -> AwsResponse | None:
    """The first page: moto knows no pages. None leaves the request to moto."""
    if not s3_account_of(call.text("Bucket")):
        return None
    every = sorted(_bucket(call).multiparts.values(), key=lambda one: (one.key_name, one.id))
    limit = min(1000, call.number("max-uploads") or 1000)
    page, more = every[:limit], len(every) > limit
    result: dict[str, Any] = {"Bucket": call.text("Bucket"), "MaxUploads": limit, "IsTruncated": more}
    if more:
        result |= {"NextKeyMarker": page[-1].key_name, "NextUploadIdMarker": page[-1].id}
    uploads = "".join(f"<Upload>{xml({'Key': one.key_name, 'UploadId': one.id}, '')}</Upload>" for one in page)
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    body = f'<ListMultipartUploadsResult xmlns="{space}">{xml(result, "")}{uploads}</ListMultipartUploadsResult>'
    return AwsResponse(200, body.encode(), {"Content-Type": "application/xml", "x-amz-request-id": "0"})


def undeletable(errors: str) -> AwsResponse | None:
    """For DeleteObjects. None leaves the request to moto."""
    if not errors:
        return None
    body = f'<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{errors}</DeleteResult>'
    return AwsResponse(200, body.encode(), {"Content-Type": "application/xml", "x-amz-request-id": "0"})


def _bucket(call: AwsCall) -> Any:
    return backend_of(call, "s3").get_bucket(call.text("Bucket"))
