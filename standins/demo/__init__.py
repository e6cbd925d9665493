"""Demo of the whole service (`make demo`): Cluster API clusters on AWS and Karpenter nodes on Azure are deleted.

Begin with `scenario.py`, the course of it. `fleet.py` says which objects there are and what must become of each,
`objects.py` has them on the API server, `aws_account.py` and `azure_subscription.py` what they own, and
`deletion_denial.py` what denies the deletion of what is protected. What is shown and judged is read from the API server
and the stand-ins, not from Knell.
"""
