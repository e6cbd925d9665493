"""What a broken law looks like: an assertion that names the law.

So a planted fault can be told from an accident.
"""


class Broken(AssertionError):
    def __init__(self, law: str, what: str) -> None:
        super().__init__(f"{law}: {what}")
        self.law = law


def require(law: str, holds: bool, what: str) -> None:
    if not holds:
        raise Broken(law, what)


def broken_law(error: BaseException) -> str | None:
    """The law that an exception is about, also where hypothesis wrapped it in a group."""
    if isinstance(error, Broken):
        return error.law
    if isinstance(error, BaseExceptionGroup):
        return next((law for part in error.exceptions if (law := broken_law(part))), None)
    return None
