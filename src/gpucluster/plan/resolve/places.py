"""Places in S3 that jobs or pods may use. Pure."""

from gpucluster.plan.model.aws import JobsS3Access
from gpucluster.spec.aws import Jobs
from gpucluster.spec.kubernetes import ServiceAccount


def s3_access(requested: Jobs | ServiceAccount) -> JobsS3Access:
    """Sorted by name, because the order of a list of rights has no meaning."""
    read, write = ({place.rstrip("/") for place in places} for places in (requested.read, requested.write))
    return JobsS3Access(read=tuple(sorted(read)), write=tuple(sorted(write)))
