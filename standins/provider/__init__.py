"""A simulated provider: a real HTTP server with resources, quotas, dependencies, reservations and a log.
It stands in for a cloud in the demo and in the scenarios; what it saw is written down by it alone.

Times on the wire are real ones: what is set as 180 s, with a scale of 30, is announced and kept as 6 s.

`POST /seed`, body {"resources": [...], "objects": [...]}
    Adds what `world.Seed` describes.
`GET /accounts/ACCOUNT/resources/ID`
    200 {"id", "owner", "state"}, where state is `there` or `deleting`; or 404.
`GET /accounts/ACCOUNT/resources?ids=ID,ID`
    200 {"found": [as above], "missing": [ids]}.
`DELETE /accounts/ACCOUNT/resources/ID`
    204 gone at once; 202 accepted, gone later; 404 not there; 409 {"code": "InUse", "blocker": ID};
    400 {"code": "ReservedForAnotherOwner", "message": "ID is reserved for another owner for 6 seconds"};
    429 {"code": "TooManyRequests"} with Retry-After; 500.
`POST /accounts/ACCOUNT/spend`, body {"tokens": 10}
    Another user of the quota takes what is there of so many: 200 {"taken"}.
`GET /objects/UID`
    200 {"uid", "owner", "targets": [...]} as `world.Object` has it; or 404.
`GET /quota`
    200 {"kind": "bucket" or "window", "capacity", "per": seconds}, or {"kind": "none"}.
`GET /state`
    200 {"there", "deleting", "gone", "answered": {status: calls}}.

Only DELETE draws on the quota of its account, one token for a call; a refused call draws none. Its answers
carry `x-remaining`, unless that is switched off. Callers name themselves in the header `x-caller`.

The log has a JSON object on each line, see `journal.Line`. `what` is `request` or `gone`. A request has
`arrived` and `at` (answered), both of the wall clock, `monotonic` (of the arrival), `method`, `account`,
`id`, `status` and `caller`; a DELETE also `owner` and `remaining`, and, where they apply, `blocker`,
`retry_until` and `reserved_until`.
"""

from standins.provider.behaviour import Behaviour, Quota
from standins.provider.journal import Line, read_log
from standins.provider.process import ProviderProcess
from standins.provider.server import Provider
from standins.provider.world import Object, Resource, Seed, TargetOf

__all__ = [
    "Behaviour",
    "Line",
    "Object",
    "Provider",
    "ProviderProcess",
    "Quota",
    "Resource",
    "Seed",
    "TargetOf",
    "read_log",
]
