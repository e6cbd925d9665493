"""Lists of a group or a subscription in pages, each with the address of the next one.
A page begins after the last name of the one before, so what goes or comes meanwhile does not shift it."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from typing import Any
from urllib.parse import urlencode

from standins.azure.answers import Answer, answered, failed
from standins.azure.behaviour import Behaviour
from standins.azure.calls import Call
from standins.azure.resources import id_of
from standins.azure.shapes import document
from standins.azure.store import Store


def listed(call: Call, store: Store, behaviour: Behaviour, address: str) -> Answer:
    assert call.kind is not None  # noqa: S101 - what is listed is of a kind
    token = call.query.get("$skiptoken", "")
    try:
        after = urlsafe_b64decode(token).decode()
    except (Error, UnicodeDecodeError):
        return failed(400, "InvalidSkipToken", "The skip token is not valid.")
    size = behaviour.network_page if call.provider == "network" else behaviour.compute_page
    within = id_of(call.subscription, call.group, call.kind, "").lower() if call.group else ""
    found = store.shelf(call.subscription, call.kind).after(after, size + 1, within=within)
    page: dict[str, Any] = {"value": [document(thing) for thing in found[:size]]}
    if len(found) > size:
        following = urlsafe_b64encode(found[size - 1].key.encode()).decode()
        words = {"api-version": call.query.get("api-version", ""), "$skiptoken": following}
        page["nextLink"] = f"{address}{call.path}?{urlencode(words)}"
    return answered(page)
