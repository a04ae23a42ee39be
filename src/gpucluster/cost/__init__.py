"""Prices and a plan to money, pure. What has no price stays a named unknown, also in a sum."""

from gpucluster.cost.amount import Amount
from gpucluster.cost.estimate import ASSUMPTIONS, AnyPool, Estimate, Line, estimate, pools_of

__all__ = ["ASSUMPTIONS", "Amount", "AnyPool", "Estimate", "Line", "estimate", "pools_of"]
