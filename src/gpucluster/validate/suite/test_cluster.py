"""The test that `plugin` runs for each expectation.

An unknown result is an error of the fixture (JUnit: error); a wrong one is a failure.
"""

import pytest

from gpucluster.checks.check import CheckStatus
from gpucluster.validate.results import Result


def check(found: Result) -> None:
    """Fail if the result is a failure, or a warning that stops work."""
    if found.verdict is CheckStatus.FAIL or found.stops_work:
        pytest.fail(
            f"found: {found.found}\nexpected: {found.expected}\nremedy: {found.remedy}", pytrace=False
        )
