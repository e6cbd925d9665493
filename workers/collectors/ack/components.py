"""Builds what the collector of ACK's objects brings to a worker: the collector, the kinds that it removes by
identifier, and its checks for `knell doctor`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from service.contract import Target
from service.sources.ack import ACK, AckSettings
from workers.collectors.ack.checks import run_checks
from workers.collectors.ack.claim import AckClaim
from workers.collectors.ack.collector import AckCollector, KindNamed
from workers.collectors.ack.identities import AckIdentities
from workers.collectors.ack.judge import AckJudge
from workers.collectors.ack.removable_kinds import removable_kind
from workers.collectors.ack.scopes import AckScopes
from workers.handlers.components import Components, Context
from workers.providers.aws.client.clients import SdkClients
from workers.providers.aws.components import AwsProvider, aws_provider
from workers.providers.aws.errors import AwsError, NoAccess
from workers.providers.aws.kinds import IDENTIFIER_KINDS

_claims = msgspec.json.Decoder(AckClaim)


@asynccontextmanager
async def components(context: Context) -> AsyncIterator[Components]:
    provider = await context.provider(aws_provider)
    provider.add_kinds(*IDENTIFIER_KINDS)
    async with ack_components(context, provider) as made:
        yield made


@asynccontextmanager
async def ack_components(
    context: Context, provider: AwsProvider, kinds: KindNamed = removable_kind
) -> AsyncIterator[Components]:
    """`kinds` are those of the provider that may be removed."""
    settings, clients, places = context.settings, provider.clients, context.source_clusters
    ack = settings.section(AckSettings)
    judge = AckJudge(ack)
    identities = AckIdentities(places, clients.sessions, clients.own_credentials, ack)
    consented = provider.register(ACK, judge, identities)
    scopes = AckScopes(settings, clients, identities, clients.sessions.partition)
    collector = AckCollector(settings, places, scopes, judge, kinds, context.kept_records, consented)
    try:
        yield Components(
            collector=collector,
            exists=partial(_exists, clients, kinds),
            checks=partial(run_checks, context, clients, identities),
        )
    finally:
        await collector.aclose()


async def _exists(clients: SdkClients, kinds: KindNamed, target: Target) -> bool | None:
    kind = kinds(target.kind)
    if kind is None:
        return None
    try:
        claim = _claims.decode(target.data)
        client = await clients.client(claim.scope, account=claim.account, paced=True)
        found = (await kind.read(client, [target.id])).get(target.id)
    except (AwsError, NoAccess, msgspec.DecodeError):
        return None
    return found is not None and found.state not in kind.absent_states
