"""Kinds of the AWS provider that ACK's resources are removed by, by their names."""

from collections.abc import Iterator

from workers.providers.aws.kinds import IDENTIFIER_KINDS, KINDS
from workers.providers.aws.kinds.declaration import AwsKind

_BY_NAME = {kind.name: kind for kind in (*KINDS, *IDENTIFIER_KINDS)}


def removable_kind(name: str) -> AwsKind | None:
    return _BY_NAME.get(name)


def removable_kinds(names: Iterator[str]) -> list[AwsKind]:
    """Those of these names that this version has, each once."""
    return [kind for name in dict.fromkeys(names) if (kind := removable_kind(name)) is not None]
