"""Error of a broken law: an assertion that names the law.

A planted fault can thus be told from another failure."""

from collections.abc import Callable
from typing import ClassVar


class BrokenLaw(AssertionError):
    first: ClassVar[str | None] = None
    """The law that was broken first, whatever hypothesis makes of it; who hunts for one sets it back to None."""

    def __init__(self, law: str, what: str) -> None:
        super().__init__(f"{law}: {what}")
        self.law = law
        BrokenLaw.first = BrokenLaw.first or law


def require(law: str, holds: bool, what: str) -> None:
    if not holds:
        raise BrokenLaw(law, what)


def broken(check: Callable[[], None]) -> str | None:
    """The law that a check finds broken, if any."""
    try:
        check()
    except BrokenLaw as error:
        return error.law
    return None
