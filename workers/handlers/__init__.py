"""What providers, collectors and the worker share: the protocols between them, and the release.

Begin with `protocol` (what a handler is), `collector` (what a collector is) and `components` (how both are opened). A
handler reads, checks and deletes, and returns a verdict for each job. Nothing here knows Redis. Handlers never ack, and
never wait for a retry: the verdict says when the next one is due. Equal concurrent reads share one through
`service/coalesced_reads.py`.
"""
