"""Requests of S3, parsed: the action is in the method, the path and the query, not in a parameter."""

import re
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

_SUBRESOURCES: Final = {
    ("GET", "location"): "GetBucketLocation",
    ("GET", "tagging"): "GetBucketTagging",
    ("PUT", "tagging"): "PutBucketTagging",
    ("GET", "versioning"): "GetBucketVersioning",
    ("PUT", "versioning"): "PutBucketVersioning",
    ("GET", "versions"): "ListObjectVersions",
    ("GET", "uploads"): "ListMultipartUploads",
    ("POST", "delete"): "DeleteObjects",
}
_BUCKET: Final = {"PUT": "CreateBucket", "DELETE": "DeleteBucket", "HEAD": "HeadBucket", "GET": "ListObjects"}
_OBJECT: Final = {"PUT": "PutObject", "DELETE": "DeleteObject", "HEAD": "HeadObject", "GET": "GetObject"}
_KEY: Final = re.compile(r"<Key>(.*?)</Key>")


def parse_s3(method: str, path: str, headers: Any, body: bytes) -> tuple[str, dict[str, Any]]:
    """Action and parameters; of a body only the keys that DeleteObjects names. Buckets are in the path, as clients with
    a plain address have them."""
    route, _, text = path.partition("?")
    query = dict(parse_qsl(text, keep_blank_values=True))
    bucket, _, key = unquote(route).lstrip("/").partition("/")
    owner = headers.get("x-amz-expected-bucket-owner", "")
    params: dict[str, Any] = {**query, "Bucket": bucket, "Key": key, "ExpectedBucketOwner": owner}
    if not bucket:
        return "ListBuckets", params
    if key:
        return _of_object(method, query), params
    found = (name for (verb, part), name in _SUBRESOURCES.items() if verb == method and part in query)
    action = next(found, _BUCKET.get(method, "Other"))
    if action == "DeleteObjects":
        params["Keys"] = _KEY.findall(body.decode(errors="replace"))
    return action, params


def _of_object(method: str, query: dict[str, str]) -> str:
    if "uploads" in query:
        return "CreateMultipartUpload"
    if "uploadId" in query:
        return {"PUT": "UploadPart", "DELETE": "AbortMultipartUpload"}.get(method, "CompleteMultipartUpload")
    return _OBJECT.get(method, "Other")
