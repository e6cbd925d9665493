"""Normal form of Redis contents that makes two runs of the same case comparable. Both see the same clock, so that times
and tokens are equal to the millisecond; only stream entry ids, their times and epochs differ."""

import json
import re
from typing import Any

_ENTRY = re.compile(r"(?<!\d)\d{13}-\d+")
_ENTRY_TIME = re.compile(r'("resharded_at": "|"resharded_at", ")\d{13}')
"""Compared with entries of the audit, so it is the server's own time."""
_NAME = re.compile(r'"[0-9a-f]{16}"')


def alike(found: Any) -> str:
    """A text that is the same for two runs that came to the same."""
    # Names first: one may well consist of digits that look like an entry.
    text = _NAME.sub('"name"', json.dumps(found, sort_keys=True))
    return _ENTRY_TIME.sub(r"\1 time", _ENTRY.sub("entry", text))


def in_order(raw: list[tuple[str, Any]]) -> dict[str, Any]:
    """Hashes and sorted sets as what they are: the order in which a server tells their parts is no difference.

    Of wake-ups it only matters that there is one: to be woken twice does no harm.
    """
    return {name: bool(value) if name == "wake" else _pairs(value) for name, value in raw}


def _pairs(value: Any) -> Any:
    if isinstance(value, list) and value and len(value) % 2 == 0 and all(isinstance(part, str) for part in value):
        return dict(zip(value[::2], value[1::2], strict=True))
    return value
