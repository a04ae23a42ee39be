"""Check that the API server answers, with the version of the plan."""

import re
from dataclasses import dataclass

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckResult, Location, Query, QueryOutput, failed, passed

_MINOR = re.compile(r"(\d{1,4})\+?", re.ASCII)  # EKS writes `36+`


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """The release of the plan: `1.36`."""

    version: str


def query_version(_: ApiServer) -> tuple[Query, ...]:
    return (Query(at=Location.API, argv=("version", "--output=json")),)


def parse_version(outputs: tuple[QueryOutput, ...]) -> str:
    """The server's release: `1.36`."""
    (output,) = outputs
    server = json_fields.table(output.text())
    major, minor = (json_fields.text(server, "serverVersion", part) for part in ("major", "minor"))
    found = _MINOR.fullmatch(minor)
    return f"{major}.{found[1] if found else minor}"


def evaluate_version(found: str, want: ApiServer) -> CheckResult:
    expected = f"Kubernetes {want.version}"
    return passed(expected) if found == want.version else failed(f"Kubernetes {found or 'unknown'}", expected)
