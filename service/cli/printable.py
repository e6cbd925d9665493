"""Text made safe to print: credentials masked, control characters escaped.
It is apart from output.py so that long-running commands need not import rich."""

import re
from typing import Final

from service.masking import mask_text

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(value: object) -> str:
    """Masks credentials, and writes control characters as \\xNN."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", mask_text(str(value)))
