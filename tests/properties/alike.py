"""Makes two runs of the same errand comparable: times, tokens and entries are told by their order, not by their value.

Both runs see the same clock, which goes on by a second with every call; what a call itself takes is rounded away.
"""

import json
import re
from typing import Any

_ENTRY = re.compile(r"(?<!\d)\d{13}-\d+")
_FENCE = re.compile(r"(?<!\d)\d{16}(?!\d)")
_TIME = re.compile(r"(?<!\d)\d{13}(?!\d)(?:\.\d+)?")
_NAME = re.compile(r'"[0-9a-f]{16}"')
_AGE = re.compile(r'(oldest": ")(\d+)')
SLACK = 20
_NUMBER = re.compile(r"(?<![\d.#])\d+\.\d+(?:e[-+]\d+)?")


def alike(found: Any, begun: float) -> str:
    """A text that is the same for two runs that came to the same."""
    # Names first: one may well consist of digits that look like a time.
    text = _NAME.sub('"name"', json.dumps(found, sort_keys=True))
    text = _ENTRY.sub("entry", text)
    text = _NUMBER.sub(lambda match: str(round(float(match[0]))), text)
    text = _AGE.sub(lambda match: f"{match[1]}{int(match[2]) // 1000} s", text)
    fences = sorted(set(_FENCE.findall(text)))
    text = _FENCE.sub(lambda match: f"fence{fences.index(match[0])}", text)
    # Everything happens at whole or half seconds; what a call takes on a busy machine stays below the next one.
    return _TIME.sub(lambda match: f"half{int(float(match[0]) - begun + SLACK) // 500}", text)


def in_order(raw: list[tuple[str, Any]]) -> dict[str, Any]:
    """Hashes and sorted sets as what they are: the order in which a server tells their parts is no difference.

    Of wake-ups it only matters that there is one: to be woken twice does no harm.
    """
    return {name: bool(value) if name == "wake" else _pairs(value) for name, value in raw}


def _pairs(value: Any) -> Any:
    if isinstance(value, list) and value and len(value) % 2 == 0 and all(isinstance(part, str) for part in value):
        return dict(zip(value[::2], value[1::2], strict=True))
    return value
