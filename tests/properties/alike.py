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
_NUMBER = re.compile(r"(?<![\d.#])\d+\.\d+(?:e[-+]\d+)?")


def alike(found: Any, begun: float) -> str:
    """A text that is the same for two runs that came to the same."""
    text = _ENTRY.sub("entry", json.dumps(found, sort_keys=True))
    fences = sorted(set(_FENCE.findall(text)))
    text = _FENCE.sub(lambda match: f"fence{fences.index(match[0])}", text)
    text = _TIME.sub(lambda match: f"second{round((float(match[0]) - begun) / 1000)}", text)
    text = _NUMBER.sub(lambda match: str(round(float(match[0]))), text)
    return _NAME.sub('"name"', text)


def in_order(raw: list[tuple[str, Any]]) -> dict[str, Any]:
    """Hashes and sorted sets as what they are: the order in which a server tells their parts is no difference.

    Of wake-ups it only matters that there is one: to be woken twice does no harm.
    """
    return {name: bool(value) if name == "wake" else _pairs(value) for name, value in raw}


def _pairs(value: Any) -> Any:
    if isinstance(value, list) and value and len(value) % 2 == 0 and all(isinstance(part, str) for part in value):
        return dict(zip(value[::2], value[1::2], strict=True))
    return value
