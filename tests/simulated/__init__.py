"""Simulated provider: an HTTP server with resources, quotas, dependencies, reservations and a log of its own.
The engine's tests, the scenarios and the bench use it as a cloud whose behaviour they choose. `server.py` is the
provider, `source.py`, `collector.py` and `handler.py` are Knell's side of it, and `python -m tests.simulated` is the
`knell` command line with that source. Begin with `provider_state.py` and `handler.py`.

Times on the wire are real ones: what is set as 180 s, with a scale of 30, is announced and kept as 6 s.

`POST /seed`, body {"resources": [...], "objects": [...]}
    Adds what `provider_state.Seed` describes.
`GET /accounts/ACCOUNT/resources/ID`
    200 {"id", "owner", "state"}, where state is `there` or `deleting`; or 404.
`GET /accounts/ACCOUNT/resources?ids=ID,ID`
    200 {"found": [as above], "missing": [ids]}.
`DELETE /accounts/ACCOUNT/resources/ID`
    204 gone at once; 202 accepted, gone later; 404 not there; 409 {"code": "InUse", "blocker": ID};
    400 {"code": "ReservedForAnotherOwner", "message": "ID is reserved for another owner for 6 seconds"};
    429 {"code": "TooManyRequests"} with Retry-After; 500.
`POST /accounts/ACCOUNT/spend`, body {"tokens": 10}
    Takes up to so many tokens, as another user of the quota would: 200 {"taken"}.
`GET /objects/UID`
    200 {"uid", "owner", "targets": [...]} as `provider_state.SeededObject` has it; or 404.
`GET /quota`
    200 {"kind": "bucket" or "window", "capacity", "per": seconds}, or {"kind": "none"}.
`GET /state`
    200 {"there", "deleting", "gone", "answered": {status: calls}}.

Only DELETE draws on the quota of its account, one token for a call; a refused call draws none. Its answers
carry `x-remaining`, unless that is switched off. Callers name themselves in the header `x-caller`.

The log has a JSON object on each line, see `journal.JournalLine`. `what` is `request` or `gone`. A request has
`arrived` and `at` (answered), both of the wall clock, `monotonic` (of the arrival), `method`, `account`,
`id`, `status` and `caller`; a DELETE also `owner` and `remaining`, and, where they apply, `blocker`,
`retry_until` and `reserved_until`.
"""

from tests.simulated.behaviour import Behaviour, Quota
from tests.simulated.journal import JournalLine, read_log
from tests.simulated.process import ProviderProcess
from tests.simulated.provider_state import Seed, SeededObject, SeededResource, TargetOf
from tests.simulated.server import SimulatedProvider

__all__ = [
    "Behaviour",
    "JournalLine",
    "ProviderProcess",
    "Quota",
    "Seed",
    "SeededObject",
    "SeededResource",
    "SimulatedProvider",
    "TargetOf",
    "read_log",
]
