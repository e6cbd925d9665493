"""Extension of the command line by one more collector, which a program passes to `service.cli.main.main`. The commands
that watch, work and plan then know that collector beside the built-in ones. It exists for programs that test or measure
Knell with a provider of their own, as real processes."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from service.cli.session import root_options
from service.settings import Settings
from service.watching.recognition import COLLECTORS, Recognise

if TYPE_CHECKING:
    from workers.handlers.collector import Collector
    from workers.handlers.protocol import Handler


class ProviderSide(Protocol):
    """A collector and the handlers of the kinds that it names, connected to their provider."""

    @property
    def collector(self) -> "Collector": ...

    @property
    def handlers(self) -> "Sequence[Handler]": ...


class Extension(Protocol):
    @property
    def collectors(self) -> Mapping[str, Recognise]:
        """What the watch side keeps of an object, by the name of the collector."""

    def connect(self, settings: Settings) -> AbstractAsyncContextManager[ProviderSide]:
        """The worker's part, connected for as long as the context lasts."""


def current_extension() -> Extension | None:
    """The extension of the command that runs now."""
    return root_options().extension


def known_collectors(extension: Extension | None) -> Mapping[str, Recognise]:
    """Every collector that a source may name in this process."""
    return COLLECTORS if extension is None else {**COLLECTORS, **extension.collectors}
