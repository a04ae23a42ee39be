"""Prove that a cluster is what its plan says: expectations from the plan, asked of the living machines.

`expectations` is pure. The rest is a pytest-testinfra suite, its ways into machines, and its reports.
"""

from gpucluster.validate.expect import Expectation, expectations

__all__ = ["Expectation", "expectations"]
