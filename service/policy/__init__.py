"""Policy: deletion policy, protection, scope and guard limits, as pure functions of values.

Begin with `evaluation.py`, which combines them to one decision with a reason. Nothing here reads a clock, Redis or a
cluster: callers pass what they have read.
"""
