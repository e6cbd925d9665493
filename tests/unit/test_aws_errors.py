"""Translation of AWS errors: every known code, and every response that AWS did not write."""

import subprocess
import sys
from typing import Any

import pytest
from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

from tests.aws_identifier_kinds import IDENTIFIER_ROWS
from tests.aws_kinds import AWS_KINDS, AwsKindRow
from workers.providers.aws.errors import (
    AwsError,
    NoAccess,
    PartlyRead,
    categorize,
    error_from_response,
    sanitize,
    translate,
)

ACTION = "ec2:DeleteSecurityGroup"


def answer(code: str, status: int = 400, message: str = "no") -> dict[str, Any]:
    return {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}


def client_error(code: str, status: int = 400, message: str = "no") -> sdk.ClientError:
    return sdk.ClientError(answer(code, status, message), "DeleteSecurityGroup")


@pytest.mark.parametrize(
    ("what", "codes"),
    [
        (
            "gone",
            "InvalidSnapshot.NotFound InvalidSubnetID.NotFound InvalidVpcID.NotFound ListenerNotFound "
            "ResourceNotFoundException",
        ),
        ("depends", "DependencyViolation VolumeInUse ResourceInUse InvalidIPAddress.InUse"),
        ("protected", "OperationNotPermitted"),
        (
            "throttled",
            "RequestLimitExceeded Throttling DependencyThrottle ThrottledException ThrottlingException SlowDown",
        ),
        ("denied", "UnauthorizedOperation AccessDenied AccessDeniedException"),
        ("credentials", "ExpiredToken ExpiredTokenException RequestExpired InvalidClientTokenId SignatureDoesNotMatch"),
        ("unreachable", "InternalError InternalFailure ServiceUnavailable Unavailable"),
        ("unreadable", "500 502 404 Unknown"),
        ("other", "InvalidParameterValue PaginationTokenExpiredException ValidationError NotFound"),
    ],
)
def test_a_code_means_what_the_facts_say(what: str, codes: str) -> None:
    assert {code: categorize(code, 400) for code in codes.split()} == dict.fromkeys(codes.split(), what)


def test_codes_of_services_with_resources_that_are_removed_by_identifier() -> None:
    for row in IDENTIFIER_ROWS.values():
        assert {categorize(code, 404) for code in row.not_found} == {"gone"}
    in_use = (
        "BucketNotEmpty DeleteConflict RepositoryNotEmptyException InvalidDBInstanceState InvalidDBClusterStateFault"
    )
    assert {categorize(code, 409) for code in in_use.split()} == {"depends"}
    assert categorize("UnmodifiableEntity", 400) == "protected"
    # A bucket that is elsewhere or another's, and a tag set that is missing, are not a missing bucket.
    for code, status, what in (("PermanentRedirect", 301, "other"), ("AccessDenied", 403, "denied")):
        assert categorize(code, status) == what
    assert categorize("NoSuchTagSet", 404) == "other"


def test_an_error_for_some_of_several_resources_stands_for_all_and_has_those_that_were_read() -> None:
    denied, throttled = AwsError("denied", ACTION, "A", "no"), AwsError("throttled", ACTION, "B", "no")
    error = PartlyRead({"a": 1}, {"b": denied, "c": throttled})
    assert (error.what, str(error)) == ("denied", str(denied))
    assert (dict(error.found), dict(error.errors)) == ({"a": 1}, {"b": denied, "c": throttled})


@pytest.mark.parametrize("row", AWS_KINDS.values(), ids=lambda row: row.name)
def test_the_codes_for_a_missing_resource_of_a_kind_mean_that_it_is_gone(row: AwsKindRow) -> None:
    assert row.not_found
    assert {categorize(code, 400) for code in row.not_found} == {"gone"}


def test_an_answer_without_a_code_is_no_answer_of_aws_and_never_a_missing_resource() -> None:
    assert categorize("", 404) == "unreadable"
    assert categorize("404", 404) == "unreadable"


def test_too_many_requests_are_throttling_whatever_they_are_called() -> None:
    assert categorize("SomethingNew", 429) == "throttled"


def test_an_unknown_code_with_a_status_of_the_server_says_nothing_about_the_resource() -> None:
    assert categorize("SomethingNew", 503) == "unreachable"
    assert categorize("SomethingNew", 400) == "other"


def test_a_failed_authentication_is_distinguished_from_a_resource_of_another_owner() -> None:
    of_key = "AWS was not able to validate the provided access credentials"
    assert isinstance(error_from_response(answer("AuthFailure", 401, of_key), ACTION), NoAccess)
    of_thing = error_from_response(answer("AuthFailure", 400, "The address does not belong to you."), ACTION)
    assert isinstance(of_thing, AwsError)
    assert of_thing.what == "denied"


def test_an_error_names_the_permission_the_code_and_the_reason() -> None:
    error = translate(client_error("UnauthorizedOperation", 403, "You are not authorized"), ACTION)
    assert isinstance(error, AwsError)
    assert (error.what, error.action, error.code) == ("denied", ACTION, "UnauthorizedOperation")
    assert str(error) == "ec2:DeleteSecurityGroup: UnauthorizedOperation: You are not authorized"


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (sdk.EndpointConnectionError(endpoint_url="https://tagging.mars-1.amazonaws.com"), "unreachable"),
        (sdk.ConnectTimeoutError(endpoint_url="https://x"), "unreachable"),
        (sdk.ReadTimeoutError(endpoint_url="https://x"), "unreachable"),
        (sdk.ConnectionClosedError(endpoint_url="https://x"), "unreachable"),
        (sdk.SSLError(endpoint_url="https://x", error="bad"), "unreachable"),
        (sdk.ProxyConnectionError(proxy_url="http://p"), "unreachable"),
        (sdk.HTTPClientError(error="odd"), "unreachable"),
        (sdk.UnknownEndpointError(service_name="tagging", region_name="mars-1"), "unreachable"),
        (sdk.EndpointResolutionError(msg="no such"), "unreachable"),
        (sdk.NoRegionError(), "unreachable"),
        (TimeoutError(), "unreachable"),
        (ConnectionResetError(104, "reset"), "unreachable"),
        (ResponseParserError("Unable to parse response, invalid XML received: b'<html>'"), "unreadable"),
        (sdk.ParamValidationError(report="Missing GroupId"), "other"),
    ],
)
def test_everything_that_is_no_answer_says_nothing_about_the_resource(error: Exception, what: str) -> None:
    known = translate(error, ACTION)
    assert isinstance(known, AwsError)
    assert known.what == what
    assert known.action == ACTION


def test_a_fault_of_our_own_is_not_dressed_up_as_one_of_aws() -> None:
    assert translate(KeyError("x"), ACTION) is None


def test_missing_credentials_are_no_denial() -> None:
    assert isinstance(translate(sdk.NoCredentialsError(), ACTION), NoAccess)
    assert isinstance(translate(client_error("ExpiredToken", 403), ACTION), NoAccess)


def test_what_only_aws_can_read_is_cut_from_a_denial() -> None:
    blob = "aB3_-" * 60
    said = f"You are not authorized to perform this operation. Encoded authorization failure message: {blob}"
    assert sanitize(said) == "You are not authorized to perform this operation"
    assert sanitize(f"left {blob} right") == "left … right"


def test_no_key_gets_into_a_message() -> None:
    assert "AKIAIOSFODNN7EXAMPLE" not in sanitize("The key AKIAIOSFODNN7EXAMPLE is unknown")
    assert "hunter2" not in sanitize("http://user:hunter2@proxy:3128 refused")
    signed = "The Canonical String should have been 'POST / x-amz-security-token:FwoGZXIvYXdzEXAMPLETOKEN'"
    assert "FwoG" not in str(error_from_response(answer("SignatureDoesNotMatch", 403, signed), ACTION))
    page = ResponseParserError("invalid XML received: b'<html>Authorization: AWS4 Signature=abc'")
    assert "abc" not in str(translate(page, ACTION))


def test_a_message_is_one_line_of_a_bearable_length() -> None:
    said = sanitize("a word \n and\tanother " * 100)
    assert "\n" not in said
    assert len(said) <= 400


def test_the_words_for_errors_and_limits_need_no_sdk() -> None:
    code = (
        "import sys, workers.providers.aws.errors, workers.providers.aws.limits\n"
        "print(*(name for name in ('botocore', 'aiobotocore', 'aiohttp') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
