"""Registry of the sources: the built-in ones, and those that a program adds before it loads its settings. A new source
is declared in a file of its own and named in `SOURCES`."""

from types import TracebackType
from typing import Final

import msgspec

from service.contract.names import FINALIZER
from service.sources import ack, capa, karpenter_azure, none
from service.sources.declaration import KeptPlaces, Section, Source

SOURCES: Final[tuple[Source, ...]] = (none.SOURCE, capa.SOURCE, karpenter_azure.SOURCE, ack.SOURCE)

_UNDECLARED: Final = Source(name="")


class _Registry:
    """The known sources, and what is looked up for every object."""

    def __init__(self, sources: tuple[Source, ...]) -> None:
        self.sources = sources
        self.by_name = {source.name: source for source in sources}
        self.finalizers = tuple(dict.fromkeys((FINALIZER, *(source.finalizer for source in sources))))
        self.annotations = frozenset[str]().union(*(source.annotations for source in sources))
        self.sections = _sections(sources)
        if len(self.by_name) < len(sources):
            raise ValueError(f"two sources have the same name: {', '.join(source.name for source in sources)}")
        for source in sources:
            if source.swept and source.modes != ("observe",):
                # Only in that mode the inventory remembers objects whose resources are kept.
                raise ValueError(f"source {source.name} is swept, so its modes must be (\"observe\",): in another mode "
                                 f"the sweep would delete resources that are kept on purpose")  # fmt: skip
        _check_kept_places(sources)


def _sections(sources: tuple[Source, ...]) -> dict[str, type[msgspec.Struct]]:
    found: dict[str, type[msgspec.Struct]] = {}
    for source in sources:
        for section in source.sections:
            if found.setdefault(section.name, section.type) is not section.type:
                raise ValueError(f"section {section.name} of source {source.name} has another type elsewhere")
    by_type: dict[type, str] = {}
    for name, kind in found.items():
        for base in (one for one in kind.__mro__ if issubclass(one, msgspec.Struct) and one is not msgspec.Struct):
            if base in by_type:
                # `Settings.section(base)` could mean either.
                raise ValueError(f"sections {by_type[base]} and {name} both are {base.__name__}: its settings must be "
                                 f"in one section, whose type the sources share")  # fmt: skip
            by_type[base] = name
    return found


def _check_kept_places(sources: tuple[Source, ...]) -> None:
    by_provider: dict[str, KeptPlaces] = {}
    for source in sources:
        if source.kept is not None:
            first = by_provider.setdefault(source.kept.provider, source.kept)
            if msgspec.structs.replace(source.kept, configured=first.configured) != first:
                raise ValueError(f"source {source.name} writes the places of provider {first.provider} in another way, "
                                 f"or removes its tags by another command, than another source")  # fmt: skip


_known = _Registry(SOURCES)


def known_sources() -> tuple[Source, ...]:
    """The built-in sources, and then those that were added."""
    return _known.sources


def source_named(name: str) -> Source:
    """The source of a collector. An unknown name has a plain declaration: the commands that only show something work
    also where a program declares sources of its own."""
    return _known.by_name.get(name, _UNDECLARED)


def known_finalizers() -> tuple[str, ...]:
    """All finalizers that Knell puts on objects."""
    return _known.finalizers


def known_annotations() -> frozenset[str]:
    """All third-party annotations that policy reads."""
    return _known.annotations


def known_sections() -> tuple[Section, ...]:
    """The sections of the settings that sources declare, each once."""
    return tuple(Section(name, kind) for name, kind in _known.sections.items())


def known_features() -> tuple[str, ...]:
    """The feature flags that sources need."""
    return tuple(dict.fromkeys(source.feature for source in _known.sources if source.feature))


class Registration:
    """A source that was added; as a context manager it is taken away at the end."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __enter__(self) -> Source:
        return self.source

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        global _known  # one list for the process
        _known = _Registry(tuple(source for source in _known.sources if source is not self.source))


def register(source: Source) -> Registration:
    """Adds a source to this process; to be called before the settings are loaded. Raises ValueError if its declaration
    is wrong, or contradicts another one."""
    global _known  # one list for the process
    _known = _Registry((*_known.sources, source))
    return Registration(source)
