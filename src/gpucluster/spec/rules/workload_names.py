"""Names that services and gangs use: variables, priorities of the cluster, service accounts of the team."""

import re
from collections.abc import Iterator

from gpucluster.catalog import Catalog, environment
from gpucluster.plan import names
from gpucluster.plan.model.values import GANG, GPU, SERVICE
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules import secrets
from gpucluster.spec.rules.findings import error, repeated, warning
from gpucluster.spec.rules.places import places_of, team_of
from gpucluster.spec.workloads import Serve, Train, WorkloadsSpec
from gpucluster.text import quoted

MAX_ENV = 200  # variables of one container
RESERVED_ENV = ("PET_", "MASTER_")  # torch's variables for the address of the peers
_REFERENCE = re.compile(
    r"\$\$|\$\(([^()]*)\)"
)  # `$$` is a `$` and begins no reference (Kubernetes API, EnvVar)
_DOUBLED = re.compile(r"(?<!\$)\$\$(?![$(])")  # `$$(NAME)` is the way to write `$(NAME)`, `$$$$` two `$`
_API_SERVER = "KUBERNETES_"  # its address, in all pods
# what the controller sets first, and drops of the pods' own (lws v0.9.0, pkg/utils/pod, addEnvVarsIfNotExists)
_OF_GROUPS = ("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX")


def variables(one: Serve | Train, path: Path) -> Iterator[Finding]:
    if len(one.env) > MAX_ENV:
        message = f"{len(one.env)} variables; a container can have at most {MAX_ENV}"
        yield error(*path, "env", id="too-many", message=message)
    for name in (*one.env, *one.secrets):
        key = "env" if name in one.env else "secrets"
        if isinstance(one, Train) and name.startswith(RESERVED_ENV):
            message = f"'{name}' is set by gpucluster for the gang; use another name"
            yield error(*path, key, name, id="reserved-name", message=message)
        elif _is_group(one) and name in _OF_GROUPS:
            message = f"'{name}' is set by the controller of the LeaderWorkerSet, which drops this one; use another name"
            yield error(*path, key, name, id="reserved-name", message=message)


def references(one: Serve | Train, path: Path) -> Iterator[Finding]:
    """Warn of `$(NAME)` that stays as it is: Kubernetes knows only the variables before it."""
    several = isinstance(one, Train) or _is_group(one)
    known = {*one.secrets, *(environment.names_set() if several else ())}
    for variable, value in one.env.items():
        for name in dict.fromkeys(found[1] for found in _REFERENCE.finditer(value) if found[1] is not None):
            if name not in known and not name.startswith(_before(one)):
                why = "is set after it" if name in one.env else "is no variable of the container"
                message = f"`$({name})` stays as it is, because '{name}' {why}; Kubernetes replaces it by a variable before it"
                yield warning(*path, "env", variable, id="unknown-variable", message=message)
        known.add(variable)


def dollars(one: Serve | Train, path: Path) -> Iterator[Finding]:
    """Warn of `$$`, which a shell reads as its own number, and of which Kubernetes leaves one `$`."""
    for place, text in _texts(one):
        if _DOUBLED.search(text):
            message = "Kubernetes makes `$$` one `$`; write `$$$$` for two"
            yield warning(*path, *place, id="doubled-dollar", message=message)


def _texts(one: Serve | Train) -> Iterator[tuple[Path, str]]:
    """Yield each text of the container in which Kubernetes replaces `$(NAME)`."""
    for name, value in one.env.items():
        yield ("env", name), value
    for key in secrets.programs(one):
        for index, line in enumerate(getattr(one, key)):
            yield (key, index), line


def _is_group(one: Serve | Train) -> bool:
    return isinstance(one, Serve) and one.nodes > 1


def _before(one: Serve | Train) -> tuple[str, ...]:
    """Return the beginnings of the variables that are before those of the workload."""
    if isinstance(one, Train):
        return (_API_SERVER, *RESERVED_ENV, *((names.CHECKPOINT_VARIABLE,) if one.checkpoint else ()))
    return (_API_SERVER, *_OF_GROUPS) if one.nodes > 1 else (_API_SERVER,)


def pull_secrets(one: Serve | Train, path: Path) -> Iterator[Finding]:
    """Refuse a Secret that is named twice: a server-side apply refuses the pods."""
    yield from repeated(one.pull_secrets, (*path, "pull_secrets"), "the Secret")


def own(one: Serve | Train, path: Path) -> Iterator[Finding]:
    if one.name.startswith(names.NCCL_TEST_PREFIX):
        message = f"names with '{names.NCCL_TEST_PREFIX}' are of the jobs that test NCCL; take another name"
        yield error(*path, "name", id="reserved-name", message=message)


def nccl_test(spec: WorkloadsSpec, cluster: ClusterSpec | None, catalog: Catalog) -> Iterator[Finding]:
    """Check that the team exists, and has a pool for the test."""
    found = require(spec.nccl_test)
    yield from repeated(found.pull_secrets, ("nccl_test", "pull_secrets"), "the Secret")
    on = require(cluster)
    teams = [team.name for team in require(on.kubernetes).teams]
    if found.team not in teams:
        near = did_you_mean(found.team, teams) or f"; there are {', '.join(teams)}"
        message = f"{quoted(found.team)} is not a team of the cluster{near}"
        yield error("nccl_test", "team", id="unknown-team", message=message)
        return
    places = places_of(found.team, on, catalog)
    if not any(place.node.get(GPU) and place.pods({GPU: place.node[GPU]}) >= 2 for place in places):
        message = f"no pool of the team {quoted(found.team)} has two nodes with whole GPUs within its quota"
        yield error("nccl_test", "team", id="no-gpus", message=message)


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
