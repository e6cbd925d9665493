"""Azure: how virtual machines, network interfaces, disks and public addresses are read, deleted and tagged.

Begin with `kinds` (the resource types), `kind_calls` (what `workers/removal.py` asks of one) and `claims` (what
collectors are asked about the resources that they claim). `components` builds everything for a process. Only `calls`
and `clients` use the SDK. Which resources belong to whom is known to the collectors alone (`workers/collectors/`).
"""
