"""Translation of Azure's errors: every documented code with its status, and responses that are not from Azure."""

import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from azure.core import exceptions as sdk

from workers.providers.azure.errors import RESERVED, AzureError, answered, fit, retry_after, translated

CALL = "DELETE Microsoft.Network/networkInterfaces/aks-a"
HELD = (
    "Nic(s) in request is reserved for another Virtual Machine for {0} seconds. Please provide another nic(s) or retry "
    "after {0} seconds. Reserved VM: /subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v"
)


def said(code: str, status: int, message: str = "no", *, details: tuple[str, ...] = (), **headers: str) -> AzureError:
    return answered(
        status,
        {name.replace("_", "-"): value for name, value in headers.items()},
        {"code": code, "message": message, "details": list(details)},
        CALL,
    )


@pytest.mark.parametrize(
    ("what", "status", "codes"),
    [
        ("gone", 404, "ResourceNotFound"),
        ("nowhere", 404, "ResourceGroupNotFound SubscriptionNotFound InvalidSubscriptionId"),
        ("nowhere", 403, "ReadOnlyDisabledSubscription"),
        ("reserved", 400, "NicReservedForAnotherVm nicreservedforanothervm NICRESERVEDFORANOTHERVM"),
        ("used", 400, "NicInUse PublicIPAddressCannotBeDeleted InUseSubnetCannotBeDeleted"),
        ("used", 400, "InUseNetworkSecurityGroupCannotBeDeleted"),
        ("used", 409, "CannotDeleteResource OperationNotAllowed AttachedDisk"),
        ("busy", 409, "AnotherOperationInProgress Conflict OperationPreempted"),
        ("busy", 429, "RetryableError"),
        ("locked", 409, "ScopeLocked"),
        ("denied", 403, "AuthorizationFailed LinkedAuthorizationFailed DenyAssignmentAuthorizationFailed Unheard"),
        ("credentials", 401, "ExpiredAuthenticationToken InvalidAuthenticationToken AuthenticationFailed"),
        ("throttled", 429, "SubscriptionRequestsThrottled TooManyRequests RateLimiting Unheard OperationNotAllowed"),
        ("throttled", 503, "TooManyRequests"),
        ("unreachable", 500, "InternalServerError Unheard"),
        ("unreachable", 503, "ServerTimeout"),
        ("other", 400, "InvalidParameter ResourceNotFound"),
        ("other", 404, "NotFound InvalidResourceType"),
    ],
)
def test_a_code_means_what_the_facts_say(what: str, status: int, codes: str) -> None:
    found = {code: said(code, status).what for code in codes.split()}
    assert found == dict.fromkeys(codes.split(), what)


def test_only_a_404_that_names_the_resource_says_that_it_is_gone() -> None:
    assert said("ResourceNotFound", 404).what == "gone"
    for status in (200, 400, 403, 409, 500):
        assert said("ResourceNotFound", status).what != "gone"
    assert answered(404, {}, {}, CALL).what == "unreadable"


def test_compute_is_throttled_by_the_code_in_its_details() -> None:
    error = said("OperationNotAllowed", 409, details=("TooManyRequests",), Retry_After="1200")
    assert (error.what, error.after, error.layer) == ("throttled", timedelta(minutes=20), "provider")
    assert said("OperationNotAllowed", 409).what == "used"


def test_a_429_of_the_networks_lock_is_no_throttle() -> None:
    lock = said("RetryableError", 429, details=("RetryableErrorDueToAnotherOperation",), Retry_After="11")
    assert (lock.what, lock.after) == ("busy", timedelta(seconds=11))
    assert said("RetryableError", 429).after is None


def test_quotas_of_resource_manager_and_provider_are_distinguished() -> None:
    assert said("SubscriptionRequestsThrottled", 429).layer == "arm"
    assert said("TooManyRequests", 429).layer == "provider"
    assert said("RateLimiting", 429).layer == "provider"


@pytest.mark.parametrize(("span", "seconds"), [("180", 180), ("18", 18), ("0.5", 0.5), ("17.25", 17.25)])
def test_how_long_an_interface_is_reserved_stands_in_the_message(span: str, seconds: float) -> None:
    error = said("NicReservedForAnotherVm", 400, HELD.format(span))
    assert (error.what, error.after) == ("reserved", timedelta(seconds=seconds))
    # The message is exact, a header beside it is not.
    assert said("NicReservedForAnotherVm", 400, HELD.format(span), Retry_After="1").after == error.after


def test_a_reservation_that_names_no_time_lasts_as_long_as_they_do() -> None:
    assert said("NicReservedForAnotherVm", 400, "It is reserved.").after == RESERVED
    assert said("NicReservedForAnotherVm", 400, "It is reserved.", Retry_After="7").after == timedelta(seconds=7)


def test_an_operation_that_failed_later_is_judged_by_its_code() -> None:
    assert said("NicReservedForAnotherVm", 200, HELD.format("30")).after == timedelta(seconds=30)
    assert said("AnotherOperationInProgress", 200).what == "busy"


@pytest.mark.parametrize(
    ("headers", "after"),
    [
        ({}, None),
        ({"Retry-After": "4"}, 4),
        ({"RETRY-AFTER": "0.25"}, 0.25),
        ({"Retry-After": "4", "x-ms-retry-after-ms": "1500"}, 1.5),
        ({"Retry-After": "-3"}, 0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"x-ms-user-quota-resets-after": "00:00:05"}, 5),
        ({"x-ms-user-quota-resets-after": "00:01:02.500"}, 62.5),
        ({"x-ms-user-quota-resets-after": "soon"}, None),
    ],
)
def test_when_to_come_again_is_read_from_the_headers(headers: dict[str, str], after: float | None) -> None:
    assert retry_after(headers) == (None if after is None else timedelta(seconds=after))


# ---- what is no answer


class SdkResponse:
    """As the SDK hands one on."""

    def __init__(self, status: int, body: str, **headers: str) -> None:
        self.status_code, self.reason, self.headers, self._body = status, "Bad", headers, body

    def text(self, encoding: str | None = None) -> str:
        return self._body


def http(kind: type[sdk.HttpResponseError], status: int, body: Any, **headers: str) -> sdk.HttpResponseError:
    text = body if isinstance(body, str) else json.dumps(body)
    answer: Any = SdkResponse(status, text, **headers)
    return kind(message="Operation returned an invalid status", response=answer)


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (sdk.ServiceRequestError("Cannot connect to host"), "unreachable"),
        (sdk.ServiceRequestTimeoutError("no"), "unreachable"),
        (sdk.ServiceResponseError("Server disconnected"), "unreachable"),
        (sdk.ServiceResponseTimeoutError("no"), "unreachable"),
        (sdk.IncompleteReadError("half of it"), "unreachable"),
        (TimeoutError(), "unreachable"),
        (ConnectionResetError(104, "reset"), "unreachable"),
        (json.JSONDecodeError("Expecting value", "<html>", 0), "unreadable"),
        (sdk.DecodeError("JSON is invalid"), "unreadable"),
        (sdk.DeserializationError("odd"), "unreadable"),
        (http(sdk.HttpResponseError, 502, "<html>Bad gateway</html>"), "unreadable"),
        (http(sdk.ResourceNotFoundError, 404, "<html>Not here</html>"), "unreadable"),
        (http(sdk.ResourceNotFoundError, 404, {"error": {}}), "unreadable"),
        (sdk.AzureError("something new"), "other"),
        (sdk.ClientAuthenticationError("no credential"), "credentials"),
    ],
)
def test_everything_that_is_no_answer_says_nothing_about_the_resource(error: Exception, what: str) -> None:
    known = translated(error, CALL)
    assert known is not None
    assert (known.what, known.call) == (what, CALL)


def test_errors_of_the_sdk_are_known_by_the_body_that_came_with_them() -> None:
    body = {"error": {"code": "ScopeLocked", "message": "Please remove the lock.", "details": []}}
    error = translated(http(sdk.ResourceExistsError, 409, body), CALL)
    assert error is not None
    assert (error.what, error.code, error.message) == ("locked", "ScopeLocked", "Please remove the lock.")
    assert str(error) == f"{CALL}: ScopeLocked: Please remove the lock."


def test_a_fault_of_our_own_is_not_dressed_up_as_one_of_azure() -> None:
    for error in (KeyError("x"), ValueError("y"), AttributeError("z")):
        assert translated(error, CALL) is None


def test_an_identity_that_gives_no_token_any_more_is_a_matter_of_credentials_and_not_of_proxies() -> None:
    """azure-identity hands on the answer of who gives tokens, which is in no shape of Azure's."""
    body = {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."}
    error = translated(http(sdk.ClientAuthenticationError, 400, body), CALL)
    assert error is not None
    assert error.what == "credentials"
    refused = {"error": {"code": "ExpiredAuthenticationToken", "message": "The token has expired."}}
    of_azure = translated(http(sdk.ClientAuthenticationError, 401, refused), CALL)
    assert of_azure is not None
    assert (of_azure.what, of_azure.code) == ("credentials", "ExpiredAuthenticationToken")


# ---- what is shown

SIGNED = (
    "https://management.azure.com/subscriptions/s/providers/Microsoft.Network/locations/westeurope/operations/o"
    "?api-version=2024-05-01&t=638&c=MIIHhzCCBm&s=Qm9vaG9vc2lnbmVk&h=aGFzaA"
)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"To retrieve status of the operation use uri: {SIGNED}.", "Qm9vaG9vc2lnbmVk"),
        ("the header was Authorization: Bearer eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiJ9.e30.c2ln", "eyJ0"),
        ("client_secret=hunter2 is wrong", "hunter2"),
        ("http://user:hunter2@proxy:3128 refused", "hunter2"),
        (f"left {'aB3_-' * 60} right", "aB3_-aB3"),
    ],
)
def test_no_signed_address_and_no_token_gets_into_a_message(text: str, secret: str) -> None:
    assert secret not in fit(text)
    assert secret not in str(said("AnotherOperationInProgress", 409, text))
    failed = translated(sdk.ServiceRequestError(text), CALL)
    assert failed is not None
    assert secret not in str(failed)


def test_the_text_of_what_is_no_answer_is_not_shown() -> None:
    page = "<html>You asked with eyJ0eXAi and password hunter2</html>"
    for error in (
        http(sdk.HttpResponseError, 502, page),
        http(sdk.ClientAuthenticationError, 401, page),
        json.JSONDecodeError("Expecting value", page, 0),
        sdk.DecodeError(page, response=None),
    ):
        known = translated(error, CALL)
        assert known is not None
        assert "hunter2" not in str(known)
        assert "html" not in str(known)


def test_a_message_is_one_line_of_a_bearable_length() -> None:
    shown = fit("a word \n and\tanother " * 100)
    assert "\n" not in shown
    assert len(shown) <= 400


def test_the_words_for_errors_limits_and_ownership_need_no_sdk() -> None:
    code = (
        "import sys\n"
        "import workers.providers.azure.errors, workers.providers.azure.limits\n"
        "import workers.collectors.karpenter_azure.ownership, workers.collectors.karpenter_azure.collector\n"
        "print(*(name for name in ('azure.core', 'azure.mgmt', 'aiohttp') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
