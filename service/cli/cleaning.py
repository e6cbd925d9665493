"""A text as it may be printed: without credentials, and without characters that could play with a terminal.
It stands apart from the tables, so that a process which draws none is not made to import what draws them."""

import re
from typing import Final

from service.masking import mask_text

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(value: object) -> str:
    """Masked, and with control characters spelt out."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", mask_text(str(value)))
