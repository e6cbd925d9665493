"""Scenarios with real processes over a longer course of events: crashes, lost servers, quotas, clouds.

Each one is judged by the provider's own log, not by what the engine reports."""
