"""Demo of the whole service (`make demo`): Cluster API clusters on AWS, Karpenter nodes on Azure and objects of ACK
are deleted.

Begin with `scenario.py`, the course of it. `fleet.py` says which objects there are and what must become of each,
`objects.py` has them on the API server, `aws_account.py`, `ack_resources.py` and `azure_subscription.py` what they own,
and `deletion_denial.py` what denies the deletion of what is protected. What is shown and judged is read from the API
server and the stand-ins, and not from Knell, except what its audit says.
"""
