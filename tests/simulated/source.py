"""Declaration of the simulated source, which a program or a test registers together with its provider's address."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from service.sources.declaration import Source
from service.sources.registry import Registration, register
from tests.simulated.collector import NAME, recognise

ADDRESS: Final = "SIMULATED_PROVIDER"
"""The environment variable that gives `python -m tests.simulated` the provider's address."""

SOURCE: Final = Source(name=NAME, components="tests.simulated.components", recognise=recognise)

_addresses: Final[list[str]] = []


def register_simulated(address: str) -> Registration:
    """For the rest of the process."""
    _addresses.append(address)
    return register(SOURCE)


@contextmanager
def simulated_source(address: str) -> Iterator[None]:
    """The source is known inside of it."""
    try:
        with register_simulated(address):
            yield
    finally:
        _addresses.remove(address)


def provider_address() -> str:
    """Of the provider that was registered last."""
    return _addresses[-1]
