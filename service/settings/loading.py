"""Loader of the settings: defaults, overridden by a YAML file, overridden by the environment.
All problems are found before anything else happens, and reported together."""

from collections.abc import Mapping
from pathlib import Path

from service.settings.decoding import Decoding
from service.settings.document import document_type, settings_of
from service.settings.environment import CONFIG_VARIABLE, environment_tree, merge_trees
from service.settings.problems import Problem, SettingsError
from service.settings.sections import Settings
from service.settings.yaml_documents import YamlError, parse_yaml


def load(config: Path | None, environ: Mapping[str, str]) -> Settings:
    """Reads the given file, or else the one that KNELL_CONFIG names. Raises SettingsError."""
    if config is None and environ.get(CONFIG_VARIABLE):
        config = Path(environ[CONFIG_VARIABLE])
    document = _document(config) if config is not None else {}
    above, problems = environment_tree(environ)
    decoding = Decoding(source=str(config) if config is not None else "the environment", problems=problems)
    whole = merge_trees(document, above) if isinstance(document, Mapping) else document
    decoded = decoding.struct(document_type(), whole)
    if problems or decoded is None:
        raise SettingsError(problems)
    settings = settings_of(decoded)
    contradictions = [Problem(path, what) for path, what in settings.contradictions()]
    if contradictions:
        raise SettingsError(contradictions)
    return settings


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
