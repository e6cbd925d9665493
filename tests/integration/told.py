"""What objects are told, as a test reads it: Events and the condition; and the fixture `stage`, with feedback on."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract.names import CONDITION
from service.settings import FeedbackSettings
from tests.clusters import TestApi
from tests.integration.staged import Stage, staged
from tests.servers import TestServer

OTHER = "example.com/other"


@pytest.fixture
async def stage(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(api, embedded_server, tmp_path) as made:
        made.settings = msgspec.structs.replace(made.settings, feedback=FeedbackSettings())
        yield made


def events(stage: Stage, uid: str) -> list[tuple[str, str, str]]:
    """Type, reason and note of the Events about an object."""
    found = stage.api.kube.get(f"/apis/events.k8s.io/v1/namespaces/{stage.namespace}/events")
    assert found is not None
    return [(one["type"], one["reason"], one["note"]) for one in found["items"] if one["regarding"]["uid"] == uid]


async def until_event(stage: Stage, uid: str, reason: str) -> tuple[str, str]:
    async def told() -> tuple[str, str] | None:
        return next(((kind, note) for kind, of, note in events(stage, uid) if of == reason), None)

    found = await stage.until(f"an Event {reason} is there", told)
    assert found is not None
    return found


def condition(stage: Stage, name: str) -> dict[str, Any] | None:
    conditions = (stage.read(name).get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == CONDITION), None)


async def until_condition(stage: Stage, name: str, reason: str, *words: str) -> dict[str, Any]:
    async def told() -> dict[str, Any] | None:
        found = condition(stage, name)
        fits = found is not None and found["reason"] == reason and all(word in found["message"] for word in words)
        return found if fits else None

    found = await stage.until(f"the condition says {reason}", told)
    assert found is not None
    return found
