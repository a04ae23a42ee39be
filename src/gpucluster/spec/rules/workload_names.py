"""Names that services and gangs use: variables, priorities of the cluster, service accounts of the team."""

from collections.abc import Iterator

from gpucluster.plan.model.values import GANG, SERVICE
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import error
from gpucluster.spec.rules.places import team_of
from gpucluster.spec.workloads import Serve, Train
from gpucluster.text import quoted

MAX_ENV = 200  # variables of one container
RESERVED_ENV = ("PET_", "MASTER_")  # torch's variables for the address of the peers


def variables(one: Serve | Train, path: Path) -> Iterator[Finding]:
    if len(one.env) > MAX_ENV:
        message = f"{len(one.env)} variables; a container can have at most {MAX_ENV}"
        yield error(*path, "env", id="too-many", message=message)
    for name in (*one.env, *one.secrets):
        if isinstance(one, Train) and name.startswith(RESERVED_ENV):
            message = f"'{name}' is set by gpucluster for the gang; use another name"
            key = "env" if name in one.env else "secrets"
            yield error(*path, key, name, id="reserved-name", message=message)


def priority(one: Serve | Train, cluster: ClusterSpec | None, path: Path) -> Iterator[Finding]:
    name = require(one.priority)
    known = [*(row.name for row in require(require(cluster).kubernetes).priorities), SERVICE, GANG]
    if name not in known:
        near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        message = f"{quoted(name)} is not a priority of the cluster{near}"
        yield error(*path, "priority", id="unknown-priority", message=message)


def service_account(one: Serve | Train, cluster: ClusterSpec | None, path: Path) -> Iterator[Finding]:
    name = require(one.service_account)
    known = [account.name for account in team_of(one.team, require(cluster)).service_accounts]
    if name not in known:
        near = did_you_mean(name, known) or (f"; there are {', '.join(known)}" if known else "; it has none")
        message = f"{quoted(name)} is not a service account of the team {quoted(one.team)}{near}"
        yield error(*path, "service_account", id="unknown-service-account", message=message)
