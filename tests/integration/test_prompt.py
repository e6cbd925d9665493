"""A connection to Redis that is over is a lost connection, whatever its transport makes of a late command."""

import asyncio
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as UnreachableError

from service.stream.prompt import PromptTlsConnection
from tests.canned_server import canned_server
from tests.papers import draw_up


async def test_a_command_on_a_tls_connection_that_is_over_is_a_lost_connection(tmp_path: Path) -> None:
    papers = draw_up(tmp_path)
    async with canned_server([[b""]], papers) as (_, port):
        connection = PromptTlsConnection(
            host="127.0.0.1", port=port, protocol=2, driver_info=None, ssl_ca_certs=str(papers.ca)
        )
        await connection.connect()  # type: ignore[no-untyped-call]
        writer = connection._writer
        assert writer is not None
        # As a server that goes away in the middle of a greeting leaves it: both sides have closed it.
        writer.transport.abort()
        writer.transport.close()
        with pytest.raises(UnreachableError):
            await connection.send_command("PING")
        assert not connection.is_connected
        await asyncio.sleep(0)
