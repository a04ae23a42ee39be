"""Label selectors: which labels one matches. Pure.

Source: Kubernetes' API reference, LabelSelector: all its requirements must hold; an empty selector matches everything, no selector nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpucluster.k8s_apply.objects import rows, section

Labels = Mapping[str, str]
_OPERATORS: Mapping[str, Callable[[Labels, str, Sequence[str]], bool]] = {
    "In": lambda labels, key, values: labels.get(key) in values,
    "NotIn": lambda labels, key, values: labels.get(key) not in values,  # also without the key
    "Exists": lambda labels, key, _: key in labels,
    "DoesNotExist": lambda labels, key, _: key not in labels,
}


def selects(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """Return whether a selector matches the labels."""
    if selector is None:
        return False
    same = section(selector, "matchLabels").items() <= labels.items()
    return same and all(
        _OPERATORS[one["operator"]](labels, one["key"], one.get("values") or ())
        for one in rows(selector, "matchExpressions")
    )
