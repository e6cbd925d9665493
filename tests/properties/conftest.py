"""Fixture with connections to the embedded server, for properties that are checked without a state machine."""

from collections.abc import Iterator

import pytest

from tests.properties.rig import Rig
from tests.redis_servers import TestServer


@pytest.fixture
def rig(embedded_server: TestServer) -> Iterator[Rig]:
    made = Rig(embedded_server.settings(shards=1))
    yield made
    made.close()
