"""One object with possessions in a cloud, in the course of the demo: made when the cloud is there, deleted when it is
watched, and followed to its end. It goes on beside the rest, which does not wait for the stand-in to start."""

import asyncio
import time
from datetime import timedelta
from typing import Final, Generic, Protocol, TypeVar

from standins.demo.failing import DemoFailed
from standins.demo.picture import Picture

_STEP: Final = 0.2
_LOOK_EVERY: Final = 0.5
_WATCHED_WITHIN: Final = 30.0

S = TypeVar("S")
Told = TypeVar("Told", covariant=True)


class Story(Protocol[Told]):
    """What differs from cloud to cloud. `underway`: what the kill of a replica is to meet has begun."""

    called: str
    underway: bool

    async def prepare(self) -> None: ...

    async def make(self) -> None: ...

    async def watched(self) -> bool: ...

    async def delete(self) -> str:
        """In what words it is told."""

    async def follow(self) -> bool:
        """Looks, and shows it; whether all is over."""

    def ending(self, took: timedelta) -> str:
        """In what words that is told."""

    async def summary(self, took: timedelta | None) -> Told:
        """As the API server and the cloud show it now."""


class Subplot(Generic[S]):
    """`underway` is set for good, also by the end. The object is not deleted before `after` is set."""

    def __init__(self, story: Story[S], picture: Picture, after: asyncio.Event | None = None) -> None:
        self._story, self._picture, self._after = story, picture, after
        self._deleted = False
        self._took: timedelta | None = None
        self.underway = asyncio.Event()

    async def prepare(self) -> None:
        await self._story.prepare()

    async def run(self) -> None:
        story = self._story
        await story.make()
        await self._until_watched()
        if self._after is not None:
            await self._after.wait()
        words, deleted_at = await story.delete(), time.monotonic()
        self._deleted = True
        self._picture.say(words)
        while not await story.follow():
            if story.underway:
                self.underway.set()
            await asyncio.sleep(_LOOK_EVERY)
        self.underway.set()
        self._took = timedelta(seconds=round(time.monotonic() - deleted_at, 1))
        self._picture.say(story.ending(self._took))

    async def _until_watched(self) -> None:
        deadline = time.monotonic() + _WATCHED_WITHIN
        while not await self._story.watched():
            if time.monotonic() > deadline:
                raise DemoFailed(f"{self._story.called} is not watched")
            await asyncio.sleep(_STEP)

    async def summary(self) -> S:
        if not self._deleted:
            raise DemoFailed(f"{self._story.called} could not be deleted in time")
        return await self._story.summary(self._took)
