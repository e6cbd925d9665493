"""The AWS provider of a process: clients, a handler for every kind of resource, and the tags of kept resources. It is
opened once, for all collectors that have resources on AWS. Only a process with such a source imports it, because the
SDK is large."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from service.settings import Settings
from service.sources.aws import AwsAccess
from workers.handlers.components import Context
from workers.handlers.kept_resources import KeptRecords
from workers.handlers.protocol import Handler
from workers.providers.aws.claims import ClaimJudge, ClaimRegistry, RecordConsent
from workers.providers.aws.client.clients import SdkClients
from workers.providers.aws.client.credentials import IdentityResolver
from workers.providers.aws.kind_calls import AwsKindCalls, RemovalContext
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.limits import AwsLimits
from workers.providers.aws.model import PROVIDER
from workers.providers.aws.rechecks import ConsentRechecks
from workers.providers.aws.retained_tags import AwsRetainedTags
from workers.removal import Removal


class AwsProvider:
    """Implements the Provider of the handlers. A collector registers before it plans anything; a kind beside those of
    `kinds` is added before the handlers are taken."""

    name = PROVIDER

    def __init__(
        self, clients: SdkClients, limits: AwsLimits, claims: ClaimRegistry, settings: AwsAccess,
        kept_records: KeptRecords, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.clients, self.limits, self.claims, self._kept_records = clients, limits, claims, kept_records
        self._context = RemovalContext(clients, settings, claims, limits, ConsentRechecks(clock))
        self._kinds: dict[str, AwsKind] = {}
        self._handlers: dict[str, Handler] = {}
        self.retained_tags = AwsRetainedTags(clients, self._kinds)
        self.add_kinds(*KINDS)

    @property
    def handlers(self) -> Sequence[Handler]:
        return tuple(self._handlers.values())

    def add_kinds(self, *kinds: AwsKind) -> None:
        """Kinds that the provider removes from now on. Raises Undeclared if a service or a limit is not declared, and
        ValueError if there is another kind of that name."""
        for kind in kinds:
            if self._kinds.get(kind.name, kind) is not kind:
                raise ValueError(f"there is another kind {kind.name} already")
        self.limits.add(kinds)
        for kind in kinds:
            self._kinds[kind.name] = kind
            self._handlers[kind.name] = Removal(AwsKindCalls(kind, self._context), self._kept_records)

    def register(
        self, collector: str, judge: ClaimJudge[Any], resolver: IdentityResolver | None = None
    ) -> RecordConsent:
        """Adds a collector: who judges its claims, and who resolves its identities, if it has any. Returns the function
        to call whenever the collector has no objections to a deletion; without that call, nothing is changed for the
        deletion, and with it only for claims of the same source, namespace, account and region."""
        self.claims.add(collector, judge)
        if resolver is not None:
            self.clients.add_resolver(collector, resolver)
        return partial(self.claims.consented, collector)


@asynccontextmanager
async def aws_provider(
    context: Context, *, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[AwsProvider]:  # fmt: skip
    """`clock` says when jobs that only wait ask for consent again."""
    aws = context.settings.section(AwsAccess)
    limits, collector_of = AwsLimits(), partial(collector_of_source, context.settings)
    sdk = SdkClients(limits, collector_of, endpoint=aws.endpoint, account=aws.account, quota=context.budgets)
    async with sdk as clients:
        yield AwsProvider(clients, limits, ClaimRegistry(collector_of), aws, context.kept_records, clock)


def collector_of_source(settings: Settings, source: str) -> str:
    """Empty if the settings have no such source."""
    declared = settings.sources.get(source)
    return "" if declared is None else declared.collector
