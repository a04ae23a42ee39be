"""What leads out of the private subnets: NAT gateways by zone, and endpoints of services. Pure."""

from collections.abc import Iterable, Sequence

from gpucluster.plan import defaults

WITHOUT_NAT = ("ec2", "secretsmanager", "sqs")  # whom machines call, beside S3
BY_JOBS = ("sts",)  # whom the agent asks for the keys of jobs
BY_SSM = ("ec2messages", "ssm", "ssmmessages")  # and whom Session Manager's agent calls


def nat_zones(zones: Sequence[str], wish: str | None, vpc: str | None) -> tuple[str, ...]:
    """Zones with a gateway of ours; in the site's VPC its own routes lead out."""
    if vpc is not None:
        return ()
    return {"one": tuple(zones[:1]), "per-zone": tuple(zones), "none": ()}[wish or defaults.NAT]


def endpoints(wished: Iterable[str], nat: str | None, *, ssm: bool, jobs: bool) -> tuple[str, ...]:
    """As wished, and where nothing else leads out (`nat: none`), those that the machines need."""
    if nat != "none":
        return tuple(sorted(set(wished)))
    needed = (*WITHOUT_NAT, *(BY_SSM if ssm else ()), *(BY_JOBS if jobs else ()))
    return tuple(sorted({*wished, *needed}))
