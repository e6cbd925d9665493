"""Handlers and collectors of outside resources, by provider, and what all of them share.

Begin with `protocol` (what a handler is) and `collector` (what a collector is). A handler reads, checks and deletes,
and returns a verdict for each job. Nothing here knows Redis. Handlers never ack, and never wait for
a retry: the verdict says when the next one is due.
"""
