"""Prices and a plan to money, pure. What has no price stays a named unknown, also in a sum."""

from gpucluster.cost.amount import Amount
from gpucluster.cost.estimate import ASSUMPTIONS, Estimate, Line, estimate

__all__ = ["ASSUMPTIONS", "Amount", "Estimate", "Line", "estimate"]
