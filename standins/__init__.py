"""Stand-ins for the outside world, used by the demo and by tests.

They keep honest state of their own, so that a claim of success can be checked against them.
"""
