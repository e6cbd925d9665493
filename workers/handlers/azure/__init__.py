"""Azure: machines, interfaces, disks and addresses of Karpenter's nodes, found, judged and removed.

Only `wiring` and what it brings along knows the SDK; everything else is values and words.
"""
