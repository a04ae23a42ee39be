"""Quantities of Kubernetes as text for people."""

from decimal import Decimal

import pytest

from gpucluster import kubernetes_quantity as quantity


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Decimal(2 * 1024**3), "2Gi"),
        (Decimal(0), "0"),
        (Decimal(10) ** 34, "1.000E+34"),
        (-(Decimal(10) ** 34), "-1.000E+34"),
    ],
    ids=str,
)
def test_amount_is_shown(amount: Decimal, text: str) -> None:
    """Regression: a huge negative amount raised InvalidOperation, because Decimal cannot divide it exactly."""
    assert quantity.shown(amount) == text
