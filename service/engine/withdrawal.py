"""Withdrawal of a deletion, after our finalizer was removed by others or the policy changed to retain. A deletion that
is not planned yet is dropped; jobs that have not ended are cancelled. An open release is not stopped."""

from service.engine.installation import Installation


async def withdraw(installation: Installation, deletion: str, why: str) -> bool:
    """False where it is too late or the deletion is unknown; then nothing is changed.

    The first step marks the deletion, which every later destructive call checks; if the process dies after it, the
    janitor continues. Each step is bounded, so that a plan of fifty thousand jobs does not block the server.
    """
    shard = installation.shard_of(deletion)
    state, under_way = await shard.withdraw(deletion, why)
    while under_way:
        _, under_way = await shard.withdraw()
    while (await shard.open_stages())[1]:
        pass
    return state in ("withdrawn", "dropped")
