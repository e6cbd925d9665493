"""Problems of a configuration, collected so that a user can fix all of them at once.
A problem names the path, the origin of the value, what was given and what is allowed."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from service.masking import MASK, mask_text, names_secret


class SettingsError(Exception):
    """The configuration cannot be used. The message is for the user and lists every problem found."""

    def __init__(self, problems: Sequence["Problem"]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems]
        head = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
        super().__init__("\n".join([f"The settings cannot be used, {head}:", *(f"  {line}" for line in lines)]))


@dataclass(frozen=True, slots=True)
class Problem:
    path: str
    what: str
    source: str = ""

    def __str__(self) -> str:
        origin = f" (from {self.source})" if self.source else ""
        return f"{self.path}{origin}: {self.what}"


def masked_value(path: str, value: object) -> str:
    """A given value for messages: short and without credentials."""
    if names_secret(path.rpartition(".")[2]):
        return MASK
    text = mask_text(repr(value))
    return text if len(text) <= 80 else f"{text[:77]}..."


def suggest(name: str, allowed: Sequence[str]) -> str:
    """Suggestions for a misspelt name, or the list of allowed ones."""
    close = get_close_matches(name, allowed, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"allowed: {', '.join(sorted(allowed))}"
