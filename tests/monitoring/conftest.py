"""promtool for the tests of rules."""

from pathlib import Path

import pytest
from support.promtool import found


@pytest.fixture(scope="session")
def promtool() -> Path:
    return found()
