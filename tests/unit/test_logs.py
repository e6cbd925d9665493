"""Logs: one JSON object per line or readable text, with context, and never with a credential."""

import base64
import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
import structlog

from service.logs import configure
from service.masking import mask_text, names_secret
from service.settings import LogSettings


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Logging is set up once per process; other tests shall find it as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_without_a_terminal_each_event_is_one_json_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings())
    structlog.contextvars.bind_contextvars(deletion="d1")
    structlog.get_logger().info("settled", fence=7, lease=timedelta(seconds=90), target="a\nb")
    (line,) = lines(capsys)
    moment = datetime.fromisoformat(str(line.pop("timestamp")))
    assert moment.utcoffset() == timedelta(0)
    assert line == {
        "level": "info",
        "event": "settled",
        "fence": 7,
        "lease": "1m30s",
        "target": "a\nb",
        "deletion": "d1",
    }


def test_on_request_events_are_readable_text(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(format="console"))
    structlog.get_logger().warning("server away", since="3s", password="hunter2")
    text = capsys.readouterr().err
    assert "server away" in text
    assert "since=3s" in text
    assert "hunter2" not in text


def test_events_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(level="warning"))
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert [line["event"] for line in lines(capsys)] == ["loud"]


def test_credentials_are_masked_wherever_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings())
    structlog.get_logger().info(
        "at redis://u:hunter2@h:1/0",
        token="hunter2",
        client_secret="hunter2",
        url="rediss://:hunter2@h",
        raw=b"redis://u:hunter2@h",
        headers={"Authorization": "Bearer hunter2hunter2", "x-ms": ["Bearer hunter2hunter2"]},
        error=ValueError("redis://u:hunter2@h"),
        signed="https://s3/x?X-Amz-Signature=hunter2&a=1",
        fence=3,
        password_file="/run/secrets/redis",
    )
    (line,) = lines(capsys)
    assert "hunter2" not in json.dumps(line)
    assert line["fence"] == 3
    assert line["password_file"] == "/run/secrets/redis"


def test_a_traceback_is_masked_and_shows_no_locals(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings())
    held = "local-value"
    try:
        raise ConnectionError(f"cannot reach redis://u:hunter2@h {len(held)}")
    except ConnectionError:
        structlog.get_logger().exception("failed")
    (line,) = lines(capsys)
    assert "ConnectionError: cannot reach redis://***@h 11" in str(line["exception"])
    assert "hunter2" not in str(line["exception"])
    assert "local-value" not in str(line["exception"])


def test_what_libraries_log_comes_out_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings())
    configure(LogSettings())
    logging.getLogger("redis").warning("lost %s", "redis://u:hunter2@h")
    (line,) = lines(capsys)
    assert (line["event"], line["logger"], line["level"]) == ("lost redis://***@h", "redis", "warning")


def test_a_value_that_json_does_not_know_is_shown_and_breaks_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(LogSettings())
    structlog.get_logger().info("odd", value=object)
    (line,) = lines(capsys)
    assert line["value"] == "<class 'object'>"


@pytest.mark.parametrize(
    "key",
    [
        "password", "Authorization", "session_token", "client-secret", "api_key", "clientSecret", "ClientSecret",
        "accessKey", "secretAccessKey", "sessionToken", "apiKey", "APIKey", "SASToken", "privateKey",
        "connectionString", "accountKey", "refreshToken", "client-key-data", "dbPassword", "clientAssertion",
    ],
)  # fmt: skip
def test_a_key_that_names_a_secret_is_recognised(key: str) -> None:
    assert names_secret(key)


@pytest.mark.parametrize(
    "key", ["fence", "tokens", "password_file", "passwordFile", "key", "lane", "accessKeyId", "keySet"]
)
def test_an_ordinary_key_is_not_taken_for_a_secret(key: str) -> None:
    assert not names_secret(key)


@pytest.mark.parametrize(
    "text",
    [
        "redis://u:hun'ter2@h",
        "redis://:hun/ter2@h",
        'body {"password": "hunter2"}',
        "password=hunter2 x",
        "Basic aHVudGVyMg==",
        "sig=hunter2&se=1",
        "X-IDENTITY-HEADER: hunter2",
        "Action=AssumeRole&ExternalId=hunter2&Version=1",
        '{"SecretAccessKey": "hunter2"}',
        "WebIdentityToken=hunter2&Version=1",
        "client_assertion=hunter2&client_assertion_type=urn%3A",
        '{"clientSecret": "hunter2"}',
        "accessKey: hunter2",
        "secretKey=hunter2",
        "secret_key: hunter2",
        "privateKey=hunter2",
        "AccountName=a;AccountKey=hunter2;EndpointSuffix=core",
        "connectionString='Endpoint=sb://a;x=hunter2'",
        "passphrase: hunter2",
        "client-key-data: hunter2",
    ],
)
def test_a_credential_inside_a_text_is_taken_out(text: str) -> None:
    masked = mask_text(text)
    assert "***" in masked
    assert not any(secret in masked for secret in ("hunter2", "ter2", "aHVud"))


JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJrbmVsbCIsInN1YiI6Imh1bnRlcjIifQ.c2lnbmF0dXJl-_x"
PEM = "-----BEGIN {kind}PRIVATE KEY-----\nMIIhunter2\nhunter2==\n-----END {kind}PRIVATE KEY-----"


@pytest.mark.parametrize(
    "token",
    [JWT, JWT.rpartition(".")[0] + ".", "eyAiYWxnIjogIm5vbmUifQ.eyJzdWIiOiJodW50ZXIyIn0.", f"{JWT}.aHVudGVy.dGFn"],
    ids=["signed", "unsigned", "with a space", "encrypted"],
)
def test_a_jwt_is_taken_out_wherever_it_stands(token: str) -> None:
    for text, left in (
        (f"sent {token} to sts", "sent *** to sts"),
        (f'["{token}"]', '["***"]'),
        (f"a/{token}", "a/***"),
    ):
        assert mask_text(text) == left


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "ENCRYPTED ", "OPENSSH "])
def test_a_private_key_in_pem_is_taken_out_with_all_its_lines(kind: str) -> None:
    key = PEM.format(kind=kind)
    for one in (key, key.replace("\n", "\\n"), key.replace("\n", " ")):
        assert mask_text(f"could not load {one}, so nothing was sent") == "could not load ***, so nothing was sent"


def test_a_private_key_that_is_cut_off_is_taken_out_to_the_end() -> None:
    assert mask_text("bad key -----BEGIN PRIVATE KEY-----\nMIIhunt") == "bad key ***"


def test_a_private_key_in_base64_is_taken_out_as_in_a_kubeconfig() -> None:
    encoded = base64.b64encode(PEM.format(kind="RSA ").encode()).decode()
    assert mask_text(f"value {encoded}, line 3") == "value ***, line 3"


def test_a_private_key_in_base64_is_taken_out_with_all_lines_that_it_is_wrapped_in() -> None:
    key = "-----BEGIN PRIVATE KEY-----\n" + "\n".join("k" * 64 for _ in range(9)) + "==\n-----END PRIVATE KEY-----\n"
    encoded = base64.b64encode(key.encode()).decode()
    for ending in ("\n", "\\n", "\n      "):
        wrapped = ending.join(encoded[place : place + 76] for place in range(0, len(encoded), 76))
        assert mask_text(f"value {wrapped}\nline 3 is fine") == "value ***\nline 3 is fine"


@pytest.mark.parametrize("backslashes", ["\\", "\\\\\\"])
def test_a_credential_in_json_inside_json_is_taken_out(backslashes: str) -> None:
    quote = backslashes + '"'
    text = f"{{{quote}clientSecret{quote}: {quote}hunter2{quote},{quote}region{quote}:{quote}eu{quote}}}"
    assert mask_text(text) == f"{{{quote}clientSecret{quote}: ***,{quote}region{quote}:{quote}eu{quote}}}"


def test_a_certificate_is_no_secret() -> None:
    text = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
    assert mask_text(text) == text


@pytest.mark.parametrize(
    "text",
    ["took 3 tokens", "https://host/path?x=1", "a@b", "the host eyjafjoll.example.org.", "a key: see below", "eyJ.a.b"],
)
def test_an_ordinary_text_stays_as_it_is(text: str) -> None:
    assert mask_text(text) == text


def test_the_error_of_a_call_of_secrets_manager_is_not_taken_for_a_secret() -> None:
    text = "secretsmanager:DeleteSecret: ThrottlingException: Rate exceeded"
    assert mask_text(text) == text
    assert mask_text("DeleteSecret: hunter2") == "DeleteSecret: ***"
