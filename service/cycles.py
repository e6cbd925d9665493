"""How often a long-running process looks for garbage that goes in circles; all other garbage goes at once.
Records come and go by the thousand and hardly ever make circles: looking often took a twelfth of a worker's time."""

import gc
from typing import Final

SELDOM: Final = 10_000
"""Objects made and not yet let go, after which the youngest are looked through."""


def look_seldom() -> None:
    """What is there by now (modules, classes) stays for good and is never looked through again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(SELDOM, 20, 50)
