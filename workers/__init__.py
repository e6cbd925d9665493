"""The consuming side of Knell: it plans deletions, attempts their jobs and settles what was found.

It uses the contract and the stream of the control side, never its commands or its surface.
"""
