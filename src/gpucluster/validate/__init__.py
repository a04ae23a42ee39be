"""Compare a running cluster with its plan.

`expectations` is pure. The other modules are a pytest-testinfra suite, its connections to machines, and its reports.
"""

from gpucluster.validate.expect import expectations
from gpucluster.validate.expectation import Expectation

__all__ = ["Expectation", "expectations"]
