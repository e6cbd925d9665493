"""Azure: virtual machines, network interfaces, disks and public addresses of Karpenter's nodes.

Begin with `collector` (which resources a NodeClaim may have left), `kinds` (the resource types) and `removal` (how one
is deleted). `components` builds everything for a worker. Only `calls`, `clients` and `listing` use the SDK.
"""
