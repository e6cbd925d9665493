"""Whole stories with real processes: crashes, lost servers, quotas.

Each one judges by the provider's own log, not by what the engine says of itself.
"""
