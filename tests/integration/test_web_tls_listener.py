"""The HTTP listener with TLS, with clients like API servers, and with clients that do not end their handshakes."""

import asyncio
import contextlib
import io
import logging
import socket
import ssl
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
import uvloop
from structlog.testing import capture_logs

from service.admission.certificates import make_certificate
from service.admission.served_certificate import ServedCertificate
from service.web.listener import API_SERVER_LIMITS, MAX_BODY_SIZE
from tests.integration.test_web_listener import (
    HOST,
    MOMENT,
    NEVER,
    PROMPT,
    WAIT,
    ListenerFixture,
    comes,
    ends,
    read_answer,
    serving,
)

PAGE = b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n"
PATIENT = PROMPT._replace(handshake=NEVER)


@pytest.fixture(scope="module")
def certificate() -> ServedCertificate:
    return served()


def served() -> ServedCertificate:
    made = ServedCertificate()
    made.load(make_certificate([HOST], datetime.now(UTC), timedelta(days=1)))
    return made


def trusting(certificate: ServedCertificate) -> ssl.SSLContext:
    assert certificate.keyed is not None
    return ssl.create_default_context(cadata=certificate.keyed.authority.decode())


async def silent(here: ListenerFixture) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose client never begins its handshake."""
    return await asyncio.open_connection(HOST, here.port)


async def test_a_client_that_trusts_the_ca_asks_again_and_again_on_one_connection(
    certificate: ServedCertificate,
) -> None:
    connector = aiohttp.TCPConnector(ssl=trusting(certificate), limit=1)
    async with (
        serving(API_SERVER_LIMITS, certificate.context) as here,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        for _ in range(3):
            async with session.get(here.url("/page")) as answer:
                assert (answer.status, await answer.text()) == (203, "words\n")
        assert len(here.listener._connections._open) == 1


async def test_a_review_of_four_mebibytes_is_read_and_a_larger_one_refused(certificate: ServedCertificate) -> None:
    connector = aiohttp.TCPConnector(ssl=trusting(certificate))
    async with (
        serving(API_SERVER_LIMITS, certificate.context) as here,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        for size, status in ((MAX_BODY_SIZE + 1, 200), (4 * 1024 * 1024, 200), (4 * 1024 * 1024 + 1, 413)):
            async with session.post(here.url("/length"), data=io.BytesIO(b"x" * size)) as answer:
                assert answer.status == status


async def test_what_comes_together_with_the_end_of_the_handshake_is_answered(certificate: ServedCertificate) -> None:
    async with serving(PATIENT, certificate.context) as here:

        def asked() -> bytes:
            """Many clients, none of which waits for the server behind its handshake."""
            found = b""
            for _ in range(20):
                with (
                    socket.create_connection((HOST, here.port), timeout=WAIT.total_seconds()) as plain,
                    trusting(certificate).wrap_socket(plain, server_hostname=HOST) as client,
                ):
                    client.sendall(PAGE)
                    found += client.recv(4096)
            return found

        assert (await asyncio.to_thread(asked)).count(b"HTTP/1.1 203") == 20


async def test_a_certificate_that_is_replaced_closes_no_connection() -> None:
    certificate = served()
    async with serving(PATIENT, certificate.context) as here:
        reader, writer = await here.connect(PAGE)
        assert (await read_answer(reader))[0] == 203
        certificate.load(make_certificate([HOST], datetime.now(UTC), timedelta(days=1)))
        writer.write(PAGE)
        assert (await read_answer(reader))[0] == 203
        connector = aiohttp.TCPConnector(ssl=trusting(certificate))
        async with aiohttp.ClientSession(connector=connector) as session, session.get(here.url("/page")) as answer:
            assert answer.status == 203
        writer.close()


@pytest.mark.parametrize("said", [PAGE, b"\x16\x03\x01", b""], ids=["http", "half a hello", "nothing"])
async def test_a_client_without_a_handshake_is_closed_and_not_logged(
    certificate: ServedCertificate, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    limits = PATIENT if said == PAGE else PROMPT._replace(handshake=MOMENT)
    async with serving(limits, certificate.context) as here:
        with capture_logs() as logged, caplog.at_level(logging.INFO):
            reader, writer = await silent(here)
            writer.write(said)
            await ends(reader)
        writer.close()
        assert (here.made, logged, caplog.records) == (0, [], [])


async def test_a_client_that_does_not_trust_the_certificate_is_not_logged(
    certificate: ServedCertificate, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(PATIENT, certificate.context) as here:
        with capture_logs() as logged, caplog.at_level(logging.INFO), pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(HOST, here.port, ssl=ssl.create_default_context())
        await comes("its connection is closed", lambda: not here.listener._connections._open)
        assert (here.made, logged, caplog.records) == (0, [], [])


async def test_idle_clients_do_not_shut_out_an_api_server(certificate: ServedCertificate) -> None:
    async with serving(PATIENT._replace(connections=3), certificate.context) as here:
        sitting = [await here.connect() for _ in range(3)] + [await silent(here) for _ in range(20)]
        assert (await here.ask(PAGE))[0] == 203
        await ends(sitting[0][0])
        for _, writer in sitting:
            writer.close()


async def test_stopping_ends_every_connection_at_once_and_one_whose_handshake_ends_later() -> None:
    certificate = served()
    async with serving(PATIENT, certificate.context) as here:
        clients = [await here.connect(PAGE), await here.connect()]
        assert (await read_answer(clients[0][0]))[0] == 203
        plain = socket.create_connection((HOST, here.port), timeout=WAIT.total_seconds())
        # Accepted before the next one, which is answered.
        assert (await here.ask(PAGE))[0] == 203
        async with asyncio.timeout(WAIT.total_seconds()):
            await here.listener.stop()
        for reader, writer in clients:
            await ends(reader)
            writer.close()

        def ask() -> bytes:
            with plain, trusting(certificate).wrap_socket(plain, server_hostname=HOST) as late:
                late.sendall(PAGE)
                return late.recv(4096)

        with contextlib.suppress(ConnectionError, ssl.SSLError):
            assert await asyncio.to_thread(ask) == b""
        assert here.made == 2


def test_the_listener_with_tls_behaves_the_same_on_uvloop(caplog: pytest.LogCaptureFixture) -> None:
    """Commands use it if it is installed."""
    certificate = served()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_a_client_that_trusts_the_ca_asks_again_and_again_on_one_connection(certificate))
        runner.run(test_a_review_of_four_mebibytes_is_read_and_a_larger_one_refused(certificate))
        runner.run(test_what_comes_together_with_the_end_of_the_handshake_is_answered(certificate))
        runner.run(test_a_certificate_that_is_replaced_closes_no_connection())
        for said in (PAGE, b"\x16\x03\x01", b""):
            runner.run(test_a_client_without_a_handshake_is_closed_and_not_logged(certificate, said, caplog))
        runner.run(test_a_client_that_does_not_trust_the_certificate_is_not_logged(certificate, caplog))
        runner.run(test_idle_clients_do_not_shut_out_an_api_server(certificate))
        runner.run(test_stopping_ends_every_connection_at_once_and_one_whose_handshake_ends_later())
