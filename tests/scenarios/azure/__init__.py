"""Scenarios of Karpenter's nodes on Azure, on a real control plane, a real Redis server and the stand-in for Azure.

Each test has a subscription of its own; the stand-in's clock is ten times as fast as real time unless set otherwise."""
