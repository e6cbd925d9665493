"""Read-only pictures of the data, for people who look in: the command line today, a page later.

Nothing here changes a key, and nothing reads without bound: whatever may be long is read in pages.
"""
