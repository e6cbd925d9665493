"""The `knell` command line: one file per command, named for it, and a folder for the checks of `knell doctor`.

Begin with main.py, which lists the commands. Commands load settings, call other packages, and show the result. Shared:
session.py (options, settings, Redis, errors), long_running.py (start and end of work, watch and run), output.py and
table_layout.py (tables and JSON), addresses.py and object_lookup.py (what an operator's KIND/NAME or id stands for),
cluster_clients.py (connections to clusters).
"""
