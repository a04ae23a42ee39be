"""EKS: clusters, node groups, add-ons, access entries and pod identities, with the states and refusals of the service.

Codes and messages are those that public reports of EKS's answers quote; `docs/facts/eks.md` names them.
"""
