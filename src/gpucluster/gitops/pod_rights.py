"""Which buckets the service accounts of the teams lose by an edit. Pure.

`pulumi up` changes their roles at once, so pods that run lose what the new plan does not grant (`aws.eks`: EKS Pod Identity).
"""

from collections.abc import Iterator

from gpucluster.plan.model import ClusterPlan, JobsS3Access
from gpucluster.plan.model.kubernetes import PodIdentity
from gpucluster.text import listed


def lost(old: ClusterPlan, new: ClusterPlan) -> tuple[tuple[str, str], ...]:
    """Return each service account that loses something, and what."""
    if old.kubernetes is None or new.kubernetes is None or old.name != new.name:
        return ()
    after = {_name(one): one for one in new.kubernetes.pod_identities}
    return tuple(
        (_name(one), listed(places))
        for one in old.kubernetes.pod_identities
        if (places := lost_places(one, after.get(_name(one))))
    )


def running(found: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for account, places in found:
        yield f"those of the service account {account} lose their access at `pulumi up`: {places}"


def lost_places(was: PodIdentity | JobsS3Access, now: PodIdentity | JobsS3Access | None) -> tuple[str, ...]:
    """Return what `now` no longer grants: `read s3://example-data`."""
    return tuple(_lost(was, now))


def _lost(was: PodIdentity | JobsS3Access, now: PodIdentity | JobsS3Access | None) -> Iterator[str]:
    read = () if now is None else (*now.read, *now.write)
    write = () if now is None else now.write
    yield from (f"read {one}" for one in was.read if not _within(one, read))
    yield from (f"write {one}" for one in was.write if not _within(one, write))


def _within(place: str, others: tuple[str, ...]) -> bool:
    """Return whether a bucket or prefix is, or is inside, one of the others."""
    return any(f"{place.rstrip('/')}/".startswith(f"{one.rstrip('/')}/") for one in others)


def _name(one: PodIdentity) -> str:
    return f"{one.namespace}/{one.service_account}"
