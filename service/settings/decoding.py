"""Strict decoder of raw values into a tree of structs, which reports all unknown keys and wrong values in one pass.
msgspec's own decoder stops at the first error and does not name the allowed values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from service.settings.problems import Problem, masked_value, suggest
from service.settings.values import InvalidValue, decode_value, describe_type, is_struct, unwrap_type

S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class RawValue:
    """A raw value and its origin; `text` is true for the text of an environment variable."""

    value: object
    source: str
    text: bool = False


def raw_value(raw: object) -> object:
    return raw.value if isinstance(raw, RawValue) else raw


@dataclass(slots=True)
class Decoding:
    """One pass over one tree. `source` is the origin of values that are not from a variable."""

    source: str
    problems: list[Problem] = field(default_factory=list)

    def struct(self, kind: type[S], raw: object, path: str = "") -> S | None:
        """None when the struct could not be built; the problems then say why."""
        if not isinstance(raw, Mapping):
            self._wrong(path or "the file", kind, raw)
            return None
        # By encoded name, which may differ from the attribute.
        fields = {info.encode_name: info for info in msgspec.structs.fields(kind)}
        values: dict[str, Any] = {}
        before = len(self.problems)
        for key, given in raw.items():
            place = f"{path}.{key}" if path else str(key)
            if key in fields:
                values[fields[key].name] = self._field(fields[key].type, given, place)
            else:
                self._add(place, f"unknown key; {suggest(str(key), list(fields))}", given)
        missing = [name for name, info in fields.items() if info.required and name not in raw]
        self.problems += [Problem(f"{path}.{name}", "must be given", self.source) for name in missing]
        return kind(**values) if len(self.problems) == before else None

    def _field(self, kind: Any, given: object, path: str) -> object:
        bare, _, _ = unwrap_type(kind)
        if is_struct(bare):
            return self.struct(bare, {} if given is None else given, path)
        if get_origin(bare) is dict:
            return self._named(get_args(bare)[1], {} if given is None else given, path)
        if get_origin(bare) is tuple and is_struct(get_args(bare)[0]):
            return self._listed(get_args(bare)[0], given, path)
        try:
            return decode_value(kind, raw_value(given), text=isinstance(given, RawValue) and given.text)
        except InvalidValue as wrong:
            self._wrong(path, kind, given, wrong)
            return None

    def _named(self, kind: Any, raw: object, path: str) -> object:
        if not isinstance(raw, Mapping):
            self._wrong(path, dict[str, kind], raw)
            return None
        values = {}
        for name, given in raw.items():
            if not isinstance(name, str) or not name:
                self._add(path, f"{name!r} given as a name; allowed: a text", raw)
            else:
                values[name] = self._field(kind, given, f"{path}.{name}")
        return values

    def _listed(self, kind: Any, given: object, path: str) -> object:
        raw = raw_value(given)
        if not isinstance(raw, list):
            self._wrong(path, tuple[kind, ...], given)
            return None
        return tuple(self.struct(kind, one, f"{path}[{number}]") for number, one in enumerate(raw))

    def _wrong(self, path: str, kind: Any, given: object, wrong: InvalidValue | None = None) -> None:
        if wrong is not None and wrong.hidden:
            reason = wrong.why or "not a text"
            self._add(path, f"cannot be used, {reason}; allowed: {describe_type(kind)}", given)
        else:
            self._add(path, f"{masked_value(path, raw_value(given))} given; allowed: {describe_type(kind)}", given)

    def _add(self, path: str, what: str, given: object) -> None:
        source = given.source if isinstance(given, RawValue) else self.source
        self.problems.append(Problem(path, what, source))
