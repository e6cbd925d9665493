"""Events and conditions that objects get, as a test reads them; and the fixture `judged` with feedback on."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract.names import CONDITION
from service.settings import FeedbackSettings
from tests.api_servers import TestApi
from tests.integration.judged_source import JudgedSource, judged_source
from tests.redis_servers import TestServer

OTHER = "example.com/other"


@pytest.fixture
async def judged(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[JudgedSource]:
    async with judged_source(api, embedded_server, tmp_path) as made:
        made.settings = msgspec.structs.replace(made.settings, feedback=FeedbackSettings())
        yield made


def events(judged: JudgedSource, uid: str) -> list[tuple[str, str, str]]:
    """Type, reason and note of the Events about an object."""
    found = judged.api.kube.get(f"/apis/events.k8s.io/v1/namespaces/{judged.namespace}/events")
    assert found is not None
    return [(one["type"], one["reason"], one["note"]) for one in found["items"] if one["regarding"]["uid"] == uid]


async def until_event(judged: JudgedSource, uid: str, reason: str) -> tuple[str, str]:
    async def told() -> tuple[str, str] | None:
        return next(((kind, note) for kind, of, note in events(judged, uid) if of == reason), None)

    found = await judged.until(f"an Event {reason} is there", told)
    assert found is not None
    return found


def condition(judged: JudgedSource, name: str) -> dict[str, Any] | None:
    conditions = (judged.read(name).get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == CONDITION), None)


async def until_condition(judged: JudgedSource, name: str, reason: str, *words: str) -> dict[str, Any]:
    async def told() -> dict[str, Any] | None:
        found = condition(judged, name)
        fits = found is not None and found["reason"] == reason and all(word in found["message"] for word in words)
        return found if fits else None

    found = await judged.until(f"the condition says {reason}", told)
    assert found is not None
    return found
