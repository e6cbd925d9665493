"""Table of cases of protection: annotations of a Bucket and of its Namespace, and whether its deletion is denied.

The same rows hold for the pure function, for the webhook and for the admission policy."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Final, NamedTuple

SERVICE: Final = "s3"
WORD: Final = "prevent-delete"
SPECIFIC: Final = (f"{SERVICE}.services.k8s.aws/{WORD}", f"{SERVICE}.knell.dev/{WORD}")
PLAIN: Final = (f"services.k8s.aws/{WORD}", f"knell.dev/{WORD}")
OTHER: Final = (f"rds.services.k8s.aws/{WORD}", f"rds.knell.dev/{WORD}", f"prevent.services.k8s.aws/{WORD}", WORD)
"""Annotations that say nothing about a Bucket."""

_ABSENT: Final = None
_SPELLINGS: Final = (
    "True",
    " true ",
    "FALSE",
    "\tfalse",
    "\ntrue\n",
    "\u00a0true\u3000",
    " ",
    "1",
    "0",
    "truee",
    "true false",
    "tr\nue",
    "on",
    "x" * 80,
    "x" * 81,
    "'true'",
    '"false"',
    'it\'s "on"',
    "C:\\true",
    "größer",
    "…",
    "true  false",
    "\x1cfalse",
    "\x1b[31mred",
    "a\x0bb\x85c\u2028d",
    "\u200btrue",
    "'\x07\"",
)
"""Of values: what is only white space or case around true and false means the same."""
_WHITE_SPACE: Final = " \t\n\r\u00a0\u3000"


class ProtectionCase(NamedTuple):
    """`free`, `protected` or `invalid`, which denies, too."""

    own: Mapping[str, str]
    namespace: Mapping[str, str]
    expected: str


def protection_cases() -> list[ProtectionCase]:
    """Each pair of annotations once."""
    found = {(tuple(own.items()), tuple(outer.items())): (own, outer) for own, outer in _annotations()}
    return [ProtectionCase(own, outer, _expected(own, outer)) for own, outer in found.values()]


def _annotations() -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    values = (_ABSENT, "true", "false", "yes")
    # Every combination of level, prefix and value; in every second row, annotations for others stand beside them.
    for number, (a, b, c, d) in enumerate(product(values, repeat=4)):
        beside = dict.fromkeys(OTHER, ("true", "nonsense")[number // 2 % 2]) if number % 2 else {}
        yield (
            _present({SPECIFIC[0]: a, PLAIN[0]: b}) | beside,
            _present({SPECIFIC[0]: c, PLAIN[0]: d}) | beside,
        )
    # Both families at one rank: they must agree.
    more = (_ABSENT, "true", "false", "", "no")
    for names, first, second in product((SPECIFIC, PLAIN), more, more):
        pair = _present({names[0]: first, names[1]: second})
        yield pair, {PLAIN[0]: "true"}
        yield {}, pair
        yield pair, {}
    # Spellings.
    for value in _SPELLINGS:
        for name in (*SPECIFIC, *PLAIN):
            yield {name: value}, {}
            yield {}, {name: value}
    # What decides is only what stands first, also beside many other annotations.
    crowd = {f"example.com/{number}": "true" for number in range(500)}
    yield crowd | {PLAIN[0]: "false"}, crowd | {SPECIFIC[0]: "true"}
    yield crowd, crowd | {PLAIN[1]: "true"}


def _present(annotations: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in annotations.items() if value is not None}


def _expected(own: Mapping[str, str], namespace: Mapping[str, str]) -> str:
    """Written out apart from the service, which it tests."""
    for level, names in product((own, namespace), (SPECIFIC, PLAIN)):
        said = [level[name].strip(_WHITE_SPACE).lower() for name in names if name in level]
        if said:
            if set(said) <= {"false"}:
                return "free"
            return "protected" if set(said) <= {"true"} else "invalid"
    return "free"
