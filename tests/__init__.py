"""Tests of Knell, each one a sentence about the state of the world.

They run on real servers and on stand-ins with state of their own, without mocks of our parts.
"""
