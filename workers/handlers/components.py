"""Seam between the composition root (`workers/app.py`) and the collectors: what a collector's module is given, and what
it returns. A provider is opened once, however many collectors use it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeVar

from service.contract import Draw, Limit, Target
from service.contract.checks import CheckResult
from service.settings import Settings
from workers.handlers.collector import Collector
from workers.handlers.kept_resources import KeptRecords, RetainedTags
from workers.handlers.orphans import OrphanFinder
from workers.handlers.protocol import Handler
from workers.handlers.source_clusters import SourceClusters

GuardCheck = Callable[[str, str, int], Awaitable[str]]
"""Why the guard of a source holds the object of that uid, in deletion since that time in milliseconds; empty if not."""

ExistsCheck = Callable[[Target], Awaitable[bool | None]]
"""Whether a target exists, by one read; None if the provider gives no answer. For `knell plan`, no proof of absence."""

RunChecks = Callable[[], AsyncIterator[CheckResult]]
"""The checks of `knell doctor` for one collector."""


class CallBudgets(Protocol):
    """The shared budgets, for calls outside of lanes: lists, checks and sweeps."""

    async def draw(self, place: str, draws: Sequence[Draw], *, urgent: bool = True) -> timedelta:
        """Zero if the tokens were taken; otherwise nothing was taken, and this is when to try again."""

    async def refused(self, place: str, limit: Limit, wait: timedelta | None, others: Sequence[Limit] = ()) -> None:
        """The provider throttled a call that drew on this limit and on the others."""

    async def answered(self, place: str, limit: Limit, left: float | None) -> None:
        """A call succeeded; `left` is what its response said remains of the limit."""


class Provider(Protocol):
    """An opened provider: the handlers of its kinds, and its tags of kept resources. `name` begins its lanes."""

    @property
    def name(self) -> str: ...

    @property
    def handlers(self) -> Sequence[Handler]: ...

    @property
    def retained_tags(self) -> RetainedTags: ...


P = TypeVar("P", bound=Provider)


class Context(Protocol):
    """What a collector is built from. Without `budgets` calls are not counted, as in commands that only show something;
    `patience` is then how long a list is waited for, if not as long as the worker's settings say."""

    @property
    def settings(self) -> Settings: ...

    @property
    def source_clusters(self) -> SourceClusters: ...

    @property
    def budgets(self) -> CallBudgets | None: ...

    @property
    def kept_records(self) -> KeptRecords: ...

    @property
    def guard_check(self) -> GuardCheck | None: ...

    @property
    def patience(self) -> timedelta | None: ...

    async def provider(self, opened: "Callable[[Context], AbstractAsyncContextManager[P]]") -> P:
        """The provider that this function opens; the same one for every collector of the process."""


@dataclass(frozen=True, kw_only=True)
class Components:
    """What a collector brings. `handlers` are those of kinds of its own, beside its providers'; `exists` is for targets
    that a plan only derived; with `orphans` its sources are swept."""

    collector: Collector
    handlers: Sequence[Handler] = ()
    exists: ExistsCheck | None = None
    orphans: OrphanFinder | None = None
    checks: RunChecks | None = None


OpenComponents = Callable[[Context], AbstractAsyncContextManager[Components]]
"""Type of the function `components` of the module that a source's declaration names."""
