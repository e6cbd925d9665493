"""Document type of the settings: the struct that the file and the environment are decoded into. It has the sections of
`Settings`, those of the known sources, and a key for every feature flag."""

from typing import Any, Final

import msgspec

from service.settings.features import FeatureSettings
from service.settings.sections import Settings
from service.sources.registry import known_features, known_sections

_FEATURES: Final = "features"
_SECTIONS: Final = "sections"


def document_type() -> type[msgspec.Struct]:
    """Made anew for every use, because a program may have added sources. Raises ValueError if a source declares a
    section that the settings have already."""
    if taken := {one.name for one in known_sections()} & set(Settings.__struct_fields__):
        raise ValueError(f"sources declare sections that the settings have already: {', '.join(sorted(taken))}")
    fields: list[tuple[str, Any, Any]] = []
    for info in msgspec.structs.fields(Settings):
        if info.name == _FEATURES:
            flags = _struct("FeatureFlags", [(feature, bool, False) for feature in known_features()])
            fields.append((_FEATURES, flags, flags()))
        elif info.name == _SECTIONS:
            fields += [(one.name, one.type, msgspec.field(default_factory=one.type)) for one in known_sections()]
        else:
            fields.append((info.name, info.type, _default(info)))
    return _struct("Settings", fields)


def _default(info: msgspec.structs.FieldInfo) -> Any:
    made = info.default_factory
    return info.default if made is msgspec.NODEFAULT else msgspec.field(default_factory=made)


def settings_of(document: msgspec.Struct) -> Settings:
    """The settings of a decoded document."""
    values = {name: getattr(document, name) for name in document.__struct_fields__}
    flags = values.pop(_FEATURES)
    sections = {one.name: values.pop(one.name) for one in known_sections()}
    on = frozenset(feature for feature in flags.__struct_fields__ if getattr(flags, feature))
    return Settings(**values, features=FeatureSettings(on), sections=sections)


def _struct(name: str, fields: list[tuple[str, Any, Any]]) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields, frozen=True, forbid_unknown_fields=True, kw_only=True)
