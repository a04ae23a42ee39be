"""The one test: what was found is what the plan expects. `plugin` makes an item of it for each expectation.

An answer that says nothing is an error of the set-up (JUnit: error), a wrong one a failure.
"""

import pytest

from gpucluster.checks.model import Verdict
from gpucluster.validate.results import Result


def check(found: Result) -> None:
    """Hold."""
    if found.verdict is Verdict.FAIL:
        pytest.fail(
            f"found: {found.found}\nexpected: {found.expected}\nremedy: {found.remedy}", pytrace=False
        )
