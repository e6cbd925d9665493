"""Handlers find, judge and remove outside resources and return a verdict for each job.

They know nothing of Redis, and they never ack, sleep or patch.
"""
