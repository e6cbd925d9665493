"""Access to moto: its backends, which hold the state of every account and region, and its response to a request.
moto is untyped, so everything here is `Any`."""

import io
import os
import uuid
from typing import Any
from urllib.parse import unquote_to_bytes

# Read by moto on import; without it thousands of machine images are loaded.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

from moto.backends import get_backend
from moto.core.exceptions import ServiceException
from moto.ec2.models import ec2_backends
from moto.eks.models import eks_backends
from moto.elb.models import elb_backends
from moto.elbv2.models import elbv2_backends
from moto.iam.models import iam_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.exceptions import HTTPException

from standins.aws.calls import AwsCall
from standins.aws.responses import AwsResponse, failed

# Of moto's responses; those of S3 have what they say of an object in headers.
_KEPT_HEADERS = ("content-type", "etag", "x-amz-", "x-amzn-errortype")

Refusals = (ServiceException, HTTPException)


def ec2_of(call: AwsCall) -> Any:
    return ec2_backends[call.account][call.region]


def elb_of(call: AwsCall) -> Any:
    return elb_backends[call.account][call.region]


def elbv2_of(call: AwsCall) -> Any:
    return elbv2_backends[call.account][call.region]


def eks_of(call: AwsCall) -> Any:
    return eks_backends[call.account][call.region]


_GLOBAL = ("iam", "s3")
"""Services with one backend for all regions of a partition."""


def backend_of(call: AwsCall, service: Any) -> Any:
    """By the name that moto has for the service."""
    return get_backend(service)[call.account][call.partition if service in _GLOBAL else call.region]


def s3_account_of(bucket: str) -> str:
    """The account that owns a bucket; empty if there is none of that name."""
    known: dict[str, tuple[str, str]] = get_backend("s3").bucket_accounts
    return known[bucket][1] if bucket in known else ""


def role_of_key(call: AwsCall) -> str:
    """The ARN of the role that the caller has assumed, if any."""
    keys = iam_backends[call.account][call.partition].access_keys
    key = keys.get(call.key)
    return str(key.role_arn or "") if key is not None else ""


class Moto:
    """moto's server application, called in process."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)

    def answer(self, call: AwsCall, method: str, path: str, headers: Any, body: bytes) -> AwsResponse:
        route, _, query = path.partition("?")
        # As WSGI has it.
        route = unquote_to_bytes(route).decode("latin-1")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": route,
            "QUERY_STRING": query,
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in headers.items():
            key = name.upper().replace("-", "_")
            environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
        environ["HTTP_X_MOTO_ACCOUNT_ID"] = call.account
        begun: list[tuple[int, dict[str, str]]] = []

        def start(status: str, given: list[tuple[str, str]], _error: Any = None) -> None:
            begun.append((int(status.split()[0]), dict(given)))

        try:
            result = self._app(environ, start)
            content = b"".join(result)
        except Exception as error:  # noqa: BLE001 - a failure of moto becomes a response; the server goes on
            return failed(call, "InternalFailure", f"{type(error).__name__}: {error}", 500)
        status, given = begun[0]
        kept = {name: value for name, value in given.items() if name.lower().startswith(_KEPT_HEADERS)}
        # AWS sends one with every response; moto's EKS does not.
        kept["x-amzn-RequestId"] = str(uuid.uuid4())
        return AwsResponse(status, content, kept, "" if status < 300 else _code(content, kept))


def _code(content: bytes, headers: dict[str, str]) -> str:
    """The error code, for the journal."""
    if (kind := headers.get("x-amzn-ErrorType")) is not None:
        return kind
    text = content.decode(errors="replace")
    _, found, rest = text.partition("<Code>")
    if found:
        return rest.partition("</Code>")[0]
    return text.partition('"__type"')[2].partition('"')[2].partition('"')[0] or "error"
