"""Label selectors. tests/kubernetes/test_upgrade.py holds the same rows to a real API server."""

from typing import Any

import pytest
from support.selectors import PODS, ROWS

from gpucluster.k8s_apply.selectors import selects


@pytest.mark.parametrize(("selector", "names"), [(row[0], row[2]) for row in ROWS])
def test_selector_matches_these_pods(selector: dict[str, Any], names: set[str]) -> None:
    assert {name for name, labels in PODS.items() if selects(selector, labels)} == names


def test_no_selector_matches_nothing() -> None:
    assert not selects(None, {})
