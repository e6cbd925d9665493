"""The Azure provider of a process: clients, a handler for every kind, the tags of kept resources, and the judges of the
collectors that use it. It is imported only by processes with Azure sources, because the SDK is large."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import msgspec

from service.contract import Target
from service.sources.azure import AzureAccess
from workers.handlers.components import CallBudgets, Context
from workers.handlers.kept_resources import KeptRecords
from workers.handlers.protocol import Handler
from workers.providers.azure.call_meters import BudgetCallMeter
from workers.providers.azure.calls import AzureCalls
from workers.providers.azure.claims import AzureClaim, AzureJudge, ClaimJudges, Consents
from workers.providers.azure.clients import AzureClients
from workers.providers.azure.errors import AzureError
from workers.providers.azure.host_removal import azure_removal
from workers.providers.azure.kinds import KINDS, AzureKind
from workers.providers.azure.limits import LaneLimits
from workers.providers.azure.model import PROVIDER, AzureScope, CallMeter
from workers.providers.azure.retained_tags import AzureRetainedTags

TAGGING_PATIENCE: Final = timedelta(seconds=5)
"""How long a call that tags kept resources waits for tokens; the release retries after longer waits."""

_claim: Final = msgspec.json.Decoder(AzureClaim)


class AzureProvider:
    """`budgets` are for calls outside of lanes; without them these are not limited. `collector_of` returns the
    collector of a source in the settings. Collectors register their judges, and record in `consents` which object
    consent was given for."""

    name = PROVIDER

    def __init__(
        self,
        clients: AzureClients,
        reserve: float,
        budgets: CallBudgets | None,
        collector_of: Callable[[str], str],
        kept_records: KeptRecords,
    ) -> None:
        self._clients, self._reserve, self._budgets = clients, reserve, budgets
        self._kept_records = kept_records
        self.consents = Consents()
        self._judges = ClaimJudges(collector_of)
        self._limits = LaneLimits((), reserve)
        self._kinds: dict[str, AzureKind] = {}
        self._handlers: dict[str, Handler] = {}
        self.retained_tags = AzureRetainedTags(self._kinds, self._judges, self.calls)
        self.add_kinds(*KINDS)

    @property
    def handlers(self) -> tuple[Handler, ...]:
        return tuple(self._handlers.values())

    def add_kinds(self, *kinds: AzureKind) -> None:
        """Adds kinds that are declared elsewhere. Raises UndeclaredLimits, and ValueError if there is another kind of
        that name."""
        for kind in kinds:
            if self._kinds.get(kind.name, kind) is not kind:
                raise ValueError(f"there is another kind {kind.name} already")
        self._limits.add(*kinds)
        for kind in kinds:
            self._kinds[kind.name] = kind
            self._handlers[kind.name] = azure_removal(
                kind, self.metered_calls, self._limits, self._judges, self.consents, self._kept_records
            )

    def register(self, collector: str, judge: AzureJudge[Any]) -> None:
        """Claims of this collector are judged by this judge; a claim of any other collector is refused."""
        self._judges.register(collector, judge)

    def metered_calls(self, where: AzureScope, meter: CallMeter) -> AzureCalls:
        return AzureCalls(self._clients, where, meter, self._reserve)

    def calls(self, where: AzureScope) -> AzureCalls:
        """Calls that draw their own tokens, and wait for them."""
        return self.metered_calls(where, BudgetCallMeter(where, self._budgets))

    def urgent_calls(self, where: AzureScope) -> AzureCalls:
        """Calls that draw their own tokens, and fail soon if there are none."""
        return self.metered_calls(where, BudgetCallMeter(where, self._budgets, TAGGING_PATIENCE, urgent=True))

    async def exists(self, target: Target) -> bool | None:
        """Whether a target exists, by one read; None if Azure gives no answer."""
        claim = _claim.decode(target.data)
        try:
            return await self.calls(claim.where).read(self._kinds[target.kind], target.id) is not None
        except AzureError:
            return None


@asynccontextmanager
async def azure_provider(context: Context) -> AsyncIterator[AzureProvider]:
    settings = context.settings
    access = settings.section(AzureAccess)

    def collector_of(source: str) -> str:
        declared = settings.sources.get(source)
        return declared.collector if declared is not None else ""

    async with AzureClients(access.endpoint) as clients:
        yield AzureProvider(clients, access.reserve, context.budgets, collector_of, context.kept_records)
