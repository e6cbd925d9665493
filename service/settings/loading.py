"""Loader of the settings: defaults, overridden by a YAML file, overridden by the environment.
All problems are found before anything else happens, and reported together."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from service.settings.decoding import Decoding, raw_value
from service.settings.document import document_type, settings_of
from service.settings.environment import CONFIG_VARIABLE, environment_tree, merge_trees
from service.settings.problems import Problem, SettingsError
from service.settings.sections import Settings
from service.settings.yaml_documents import YamlError, parse_yaml
from service.sources.registry import source_named


def load(config: Path | None, environ: Mapping[str, str]) -> Settings:
    """Reads the given file, or else the one that KNELL_CONFIG names. Raises SettingsError."""
    if config is None and environ.get(CONFIG_VARIABLE):
        config = Path(environ[CONFIG_VARIABLE])
    document = _document(config) if config is not None else {}
    above, problems = environment_tree(environ)
    decoding = Decoding(source=str(config) if config is not None else "the environment", problems=problems)
    whole = merge_trees(document, above) if isinstance(document, Mapping) else document
    decoded = decoding.struct(document_type(), _with_sources(whole))
    if problems or decoded is None:
        raise SettingsError(problems)
    settings = settings_of(decoded)
    contradictions = [Problem(path, what) for path, what in settings.contradictions()]
    if contradictions:
        raise SettingsError(contradictions)
    return settings


def _with_sources(whole: object) -> object:
    """With one source for each resource of a source that is about a whole group, and with the mode of every source that
    names none and whose collector has another default than `finalizer`."""
    sources = whole.get("sources") if isinstance(whole, Mapping) else None
    if not isinstance(whole, Mapping) or not isinstance(sources, Mapping):
        return whole
    named: dict[object, object] = {}
    for name, source in sources.items():
        for each, one in _by_resource(name, source):
            # A source that is named by itself comes before one of a group.
            if each == name or each not in sources:
                named[each] = _with_mode(one)
    return {**whole, "sources": named}


def _by_resource(name: object, source: object) -> Iterator[tuple[object, object]]:
    """The sources that stand for one with the resource `*.GROUP`: NAME-PLURAL for each resource of the group that its
    collector knows. A group that it does not know stays as it is, which is reported later."""
    resources: Sequence[str] = ()
    if isinstance(source, Mapping):
        wild, _, group = str(raw_value(source.get("resource"))).partition(".")
        resources = source_named(str(raw_value(source.get("collector")))).groups.get(group, ()) if wild == "*" else ()
    if not isinstance(source, Mapping) or not resources:
        yield name, source
        return
    for resource in resources:
        yield f"{name}-{resource.partition('.')[0]}", {**source, "resource": resource}


def _with_mode(source: object) -> object:
    if not isinstance(source, Mapping) or "mode" in source:
        return source
    modes = source_named(str(raw_value(source.get("collector")))).modes
    # With a single mode the settings name it, so that no reader of them expects another one.
    return {**source, "mode": modes[0]} if len(modes) > 1 else source


def _document(config: Path) -> object:
    try:
        text = config.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError([Problem(str(config), f"cannot be read, {error.strerror or error}")]) from None
    except UnicodeDecodeError:
        raise SettingsError([Problem(str(config), "is not UTF-8 text")]) from None
    try:
        document = parse_yaml(text)
    except YamlError as error:
        raise SettingsError([Problem(str(config), f"cannot be read as YAML, {error}")]) from None
    return {} if document is None else document
