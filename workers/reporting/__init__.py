"""Telling the owners of objects, in their own cluster, what becomes of what they owned outside.

It is a courtesy: it never slows the engine down and never fails it.
"""
