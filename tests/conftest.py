"""What all tests share: the golden fixture and hypothesis' profile."""

from collections.abc import Mapping

import hypothesis
import pytest
from golden_tree import GOLDEN, Golden, compare, rewrite

hypothesis.settings.register_profile("shared-machine", deadline=None)  # others may run beside us
hypothesis.settings.load_profile("shared-machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden trees instead of comparing"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(name, {path: content})` compares a whole tree: missing, stale and empty files fail."""

    def check(name: str, files: Mapping[str, bytes]) -> None:
        __tracebackhide__ = True
        if request.config.getoption("--update-golden"):
            rewrite(GOLDEN / name, files)
        if complaint := compare(GOLDEN / name, files):
            pytest.fail(f"{complaint}\nIf it is meant: make golden, then read git diff")

    return check
