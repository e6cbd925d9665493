"""Tests of pure parts and of files in the repository.

They need no server and take milliseconds.
"""
