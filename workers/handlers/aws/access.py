"""A key to AWS, as it is handed around in this process: its secrets are never shown.
Two that have the same secrets are the same, wherever they came from."""

from dataclasses import dataclass, field
from typing import Final

OWN: Final = ("own",)
"""Where a key comes from that is the process's own."""


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """A key to AWS. `by` says for people whose it is; `origin` is what it was made from, for who keeps it."""

    key: str
    secret: str
    token: str = ""
    by: str = field(default="", compare=False)
    origin: tuple[str, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        return f"Access({self.by})"
