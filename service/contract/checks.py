"""Result of one check of `knell doctor`."""

from typing import Literal

import msgspec

CheckState = Literal["fine", "warning", "wrong", "unknown"]


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """`unknown` means that the server does not disclose what the check needs. `mend` says how to fix it."""

    check: str
    state: CheckState
    what: str
    mend: str = ""
    node: str = ""
