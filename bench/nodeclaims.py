"""Karpenter's NodeClaims at the API server: the kind is there, and none of it."""

from __future__ import annotations

import aiohttp

from bench.objects import define_crds
from tests.karpenter import NODECLAIMS


async def define(session: aiohttp.ClientSession) -> None:
    """Unless it is there."""
    await define_crds(session, (NODECLAIMS,))
