"""Programs that run in the environments of other job systems, as their documentation says they are to be
used.

Each takes one order as its only argument and answers with one line of JSON; nothing here is imported by the
harness.
"""
