"""Decoder of single values by declared type, and descriptions of the allowed values.
Text from an environment variable is converted more leniently than YAML, which has types."""

import types
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from service import durations
from service.settings.redis import HostPort, RedisUrl


class InvalidValue(ValueError):
    """The value is not allowed. With `hidden` it must not be shown, not even masked."""

    def __init__(self, why: str = "", *, hidden: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.hidden = hidden


def unwrap_type(kind: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """The bare type, its annotations, and whether None is allowed."""
    optional = False
    notes: tuple[Any, ...] = ()
    while True:
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            notes = (*notes, *more)
        elif get_origin(kind) in (Union, types.UnionType):
            (kind,) = (part for part in get_args(kind) if part is not type(None))
            optional = True
        else:
            return kind, notes, optional


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def decode_value(kind: Any, given: object, *, text: bool) -> object:
    """Raises InvalidValue."""
    bare, notes, optional = unwrap_type(kind)
    if optional and (given is None or (text and str(given).lower() in ("none", "null"))):
        return None
    if bare is timedelta:
        return _duration(given, notes)
    if bare is RedisUrl:
        return _url(given)
    if get_origin(bare) is tuple:
        (item, _) = get_args(bare)
        return _addresses(given, text=text) if item is HostPort else _texts(given, _words(item), text=text)
    if bare is Path:
        if not isinstance(given, str) or not given:
            raise InvalidValue
        return Path(given)
    try:
        return msgspec.convert(given, _plain(bare, notes), strict=not text)
    except msgspec.ValidationError as error:
        raise InvalidValue from error


def _plain(bare: Any, notes: tuple[Any, ...]) -> Any:
    for note in notes:
        bare = Annotated[bare, note]
    return bare


def _duration(given: object, notes: tuple[Any, ...]) -> timedelta:
    try:
        value = durations.parse_duration(given)
    except ValueError as error:
        raise InvalidValue from error
    if not all(note.holds(value) for note in notes if isinstance(note, durations.DurationBounds)):
        raise InvalidValue
    return value


def _url(given: object) -> RedisUrl:
    if not isinstance(given, str):
        raise InvalidValue(hidden=True)
    try:
        return RedisUrl.parse(given)
    except ValueError as error:
        raise InvalidValue(str(error), hidden=True) from None


def _words(item: Any) -> tuple[str, ...]:
    """The allowed texts of a list's items; empty: any."""
    return get_args(item) if get_origin(item) is Literal else ()


def _texts(given: object, words: tuple[str, ...], *, text: bool) -> tuple[str, ...]:
    items = [part.strip() for part in given.split(",")] if text and isinstance(given, str) else given
    if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
        raise InvalidValue
    if words and not set(items) <= set(words):
        raise InvalidValue
    return tuple(items)


def _addresses(given: object, *, text: bool) -> tuple[HostPort, ...]:
    items = [part for part in given.split(",") if part.strip()] if text and isinstance(given, str) else given
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise InvalidValue
    try:
        return tuple(HostPort.parse(item) for item in items)
    except ValueError as error:
        raise InvalidValue from error


def describe_type(kind: Any) -> str:
    """The allowed values, for messages."""
    bare, notes, optional = unwrap_type(kind)
    words = _described(notes) or _allowed(bare, notes)
    return f"{words}, or none" if optional else words


def _described(notes: tuple[Any, ...]) -> str | None:
    return next((note.description for note in notes if isinstance(note, msgspec.Meta) and note.description), None)


def _allowed(bare: Any, notes: tuple[Any, ...]) -> str:
    if get_origin(bare) is Literal:
        return f"one of {', '.join(map(str, get_args(bare)))}"
    if get_origin(bare) is dict:
        return f"a mapping of names, each to {describe_type(get_args(bare)[1])}"
    if get_origin(bare) is tuple and is_struct(get_args(bare)[0]):
        return f"a list, each {describe_type(get_args(bare)[0])}"
    if get_origin(bare) is tuple:
        if words := _words(get_args(bare)[0]):
            return f"a list of some of {', '.join(words)}"
        return "a list of host:port" if get_args(bare)[0] is HostPort else "a list of texts"
    if bare is timedelta:
        return str(
            next((note for note in notes if isinstance(note, durations.DurationBounds)), durations.DurationBounds())
        )
    if bare is RedisUrl:
        return "redis://host:6379/0, rediss://host:6379/0 or unix:///path/to/socket"
    if bare is bool:
        return "true or false"
    if bare in (int, float):
        return _number("a whole number" if bare is int else "a number", notes)
    if is_struct(bare):
        return f"a mapping with the keys {', '.join(bare.__struct_encode_fields__)}"
    return "a path" if bare is Path else "a text"


def _number(noun: str, notes: tuple[Any, ...]) -> str:
    bounds = next((note for note in notes if isinstance(note, msgspec.Meta)), msgspec.Meta())
    if bounds.ge is not None and bounds.le is not None:
        return f"{noun} from {bounds.ge} to {bounds.le}"
    if bounds.ge is not None:
        return f"{noun}, {bounds.ge} or more"
    if bounds.gt is not None:
        return f"{noun} above {bounds.gt}"
    return noun
