"""Compute costs from prices and a plan. Pure. An item without a price stays a named unknown, also in a sum."""

from gpucluster.cost.amount import Amount
from gpucluster.cost.estimate import ASSUMPTIONS, AnyPool, CostLine, Estimate, estimate, pools_of

__all__ = ["ASSUMPTIONS", "Amount", "AnyPool", "CostLine", "Estimate", "estimate", "pools_of"]
