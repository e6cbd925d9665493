"""Withdrawn consent: another hand took our finalizer off, or the policy says now that what is left shall stay.
What has not begun is dropped, jobs that have not ended are cancelled; a release that is open is not stopped."""

from service.engine.installation import Installation


async def withdraw(installation: Installation, deletion: str, why: str) -> bool:
    """False where it is too late, or no such deletion is known: then nothing is changed.

    The first step marks the deletion, in front of every later destructive call; should we die after it, a janitor
    goes on. Each step is bounded, so that fifty thousand jobs keep nobody waiting.
    """
    shard = installation.shard_of(deletion)
    state, under_way = await shard.withdraw(deletion, why)
    while under_way:
        _, under_way = await shard.withdraw()
    while (await shard.open())[1]:
        pass
    return state in ("withdrawn", "dropped")
