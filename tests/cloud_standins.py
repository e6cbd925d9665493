"""Fixtures that start the stand-ins for AWS and Azure: one process of each per test process, shared by its tests.
A test gets its own account or subscription, and sets the behaviour and the clock that it needs at its start."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from standins.aws import LocalAws
    from standins.azure import LocalAzure

# Imported where they are asked for: the SDKs take longer to import than most tests take.


@pytest.fixture(scope="session")
def local_aws() -> "Iterator[LocalAws]":
    from standins.aws import LocalAws
    from standins.aws.builder import session
    from workers.providers.aws.client.sessions import service_models

    # The SDK's data files are parsed once: the builder of worlds shares them with the service.
    session().register_component("data_loader", service_models())
    running = LocalAws().start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def local_azure() -> "Iterator[LocalAzure]":
    from standins.azure import LocalAzure

    running = LocalAzure().start()
    yield running
    running.stop()
