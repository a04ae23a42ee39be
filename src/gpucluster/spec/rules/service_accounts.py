"""Service accounts of teams, and the places in S3 that their pods may use."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.spec.kubernetes import ServiceAccount
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules import s3_places
from gpucluster.spec.rules.findings import collect, error, or_none, same_names


def service_accounts(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    part = require(spec.kubernetes)
    for index, team in enumerate(part.teams):
        path = ("kubernetes", "teams", index)
        found: tuple[ServiceAccount, ...] = or_none(lambda team=team: team.service_accounts) or ()
        if found and part.existing is not None:
            message = "gpucluster makes pod identity associations only for its own EKS cluster (`control_plane: eks`)"
            yield error(*path, "service_accounts", id="not-supported", message=message)
        names = [lambda one=one: one.name for one in found]
        for finding in same_names(names, "service_accounts"):
            yield error(*path, *finding.path, id=finding.id, message=finding.message)
        for at, one in enumerate(found):
            place = (*path, "service_accounts", at)
            yield from collect(_places(one, place))


def _places(one: ServiceAccount, path: Path) -> Iterator[Finding]:
    yield from s3_places.amount(one.read, one.write, path, "its pods")
    yield from s3_places.named_once(one.read, one.write, path, "")
