"""What an error of Azure's means for the job that it stopped: wait, come again, or have a person look.
It is the one place where the words of `errors` become verdicts."""

from datetime import timedelta
from typing import Final

from service.contract import Blocked, Refused, Throttled, Verdict
from workers.handlers.azure.errors import NO_ROOM, AzureError
from workers.handlers.azure.model import Where

ROLE: Final = "deploy/azure/role-definition.json"
BUSY: Final = timedelta(seconds=10)
"""How long something else is given to end, where Azure does not say."""


def meaning(error: AzureError, where: Where) -> Verdict:
    """What an error is for the job that it stopped; what has no meaning of its own is a failed attempt."""
    match error.what:
        case "throttled":
            return Throttled(error.after, str(error), unasked=error.code == NO_ROOM)
        case "reserved":
            return Blocked(str(error), until=error.after)
        case "busy":
            return Blocked(str(error), until=error.after or BUSY)
        case "used":
            return Blocked(str(error))
        case "locked":
            return Refused(f"it is locked, and goes once the lock is lifted: {error}")
        case "denied":
            return Refused(f"{error}; allow it, as {ROLE} does")
        case "nowhere":
            return Refused(
                f"{error}; that says nothing about the resource: see whether azure.nodes names the right subscription "
                f"and group ({where.subscription}, {where.group}), or let go by `knell jobs abandon`"
            )
        case "credentials":
            # Who gives tokens may be away for a moment; where nobody ever does, it is asked for less and less.
            return Blocked(f"{error}; give the process an identity that may act there", person=True)
        case _:
            raise error.with_traceback(None)
