"""Fields that the webhooks of a project fill before the API server compares an object with its schema.

A table row has a kind, the path to each part (`*` is each entry), the field, and its value.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from gpucluster.k8s.lint.tree import along, mapping, text

_JOB = "spec.replicatedJobs.*.template.spec"
# JobSet v0.12.0, pkg/webhooks/jobset_webhook.go, Default
_TABLE: tuple[tuple[str, str, str, Any], ...] = (
    ("JobSet.jobset.x-k8s.io", "spec", "successPolicy", {"operator": "All"}),
    ("JobSet.jobset.x-k8s.io", "spec", "startupPolicy", {"startupPolicyOrder": "AnyOrder"}),
    ("JobSet.jobset.x-k8s.io", _JOB, "completionMode", "Indexed"),
    ("JobSet.jobset.x-k8s.io", f"{_JOB}.template.spec", "restartPolicy", "OnFailure"),
)
_RULES = ("spec", "failurePolicy", "rules", "*")
_KINDS = frozenset(row[0] for row in _TABLE)


def completed(key: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object as the API server sees it after the webhooks."""
    if key not in _KINDS:
        return body
    made = deepcopy(dict(body))
    for kind, path, field, value in _TABLE:
        for _, part in along(made, path.split(".")) if kind == key else ():
            if isinstance(part, dict) and not mapping(part).get(field):
                part[field] = value
    for number, (_, rule) in enumerate(along(made, _RULES)):
        if isinstance(rule, dict) and not text(mapping(rule).get("name")):
            rule["name"] = f"failurePolicyRule{number}"
    return made
