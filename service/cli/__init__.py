"""The `knell` command line, one file per group of commands.

Commands read settings, call the parts that do the work, and show what came of it.
"""
