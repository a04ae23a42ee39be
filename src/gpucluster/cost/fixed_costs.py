"""Fixed monthly costs in addition to head and nodes: login machines, NAT gateways and endpoints, storage."""

from collections.abc import Iterator

from gpucluster.cost.amount import Amount
from gpucluster.cost.price_list import CostLine, PriceList
from gpucluster.plan.model import ClusterPlan, Efs, FsxLustre, Mount, Network, Volume, eks_of


def fixed_costs(plan: ClusterPlan, price: PriceList) -> Iterator[CostLine]:
    """Yield the lines of resources that we create. The owner of a Kubernetes that exists pays for its resources."""
    if plan.aws is None or (plan.slurm is None and eks_of(plan) is None):
        return
    yield from _login(plan, price)
    yield from _network(plan.aws.network, price)
    for volume in () if plan.head is None else plan.head.volumes:
        yield _volume(volume, price)
    for mount in plan.storage:
        yield from _mount(mount, price)


def _login(plan: ClusterPlan, price: PriceList) -> Iterator[CostLine]:
    login = plan.login
    if login is None or plan.aws is None:
        return
    month = price.month(login.machine)
    public = {subnet.zone for subnet in plan.aws.network.subnets if subnet.has_public}
    if login.zone in public:
        month += price.service("public address", "public-address-hour")
    yield _line("login", "login", month.times(len(login.names)))


def _network(network: Network, price: PriceList) -> Iterator[CostLine]:
    if network.nat:
        each = price.service("NAT gateway", "nat-hour") + price.service(
            "public address", "public-address-hour"
        )
        yield _line("network", "nat", each.times(len(network.nat)))
    if network.endpoints:
        count = len(network.endpoints) * len(network.subnets)  # one for each zone
        yield _line("network", "endpoints", price.service("endpoint", "endpoint-hour").times(count))


def _volume(volume: Volume, price: PriceList) -> CostLine:
    month = price.service(f"EBS of {volume.path}", "gp3-gib-month").times(volume.size_gib)
    return _line("storage", volume.path, month)


def _mount(mount: Mount, price: PriceList) -> Iterator[CostLine]:
    if isinstance(mount.source, Efs):
        yield _line("storage", mount.path, Amount(unknown=(f"EFS of {mount.path} ({_efs_rates(price)})",)))
    if isinstance(mount.source, FsxLustre):
        row = f"fsx-lustre-{mount.source.throughput}-gib-month"
        month = price.service(f"FSx of {mount.path}", row).times(mount.source.size_gib)
        yield _line("storage", mount.path, month)


def _efs_rates(price: PriceList) -> str:
    """The amount of stored data is unknown in advance, and elastic throughput is billed by use."""
    rows = [price.prices.services.get(f"efs-{row}") for row in ("gib-month", "read-gib", "written-gib")]
    if price.region != price.prices.region or None in rows:
        return "by what is stored, read and written"
    stored, read, written = rows
    return f"{stored} {price.prices.currency} a GiB stored, {read} read, {written} written"


def _line(kind: str, name: str, month: Amount) -> CostLine:
    return CostLine(kind=kind, name=name, least=month, most=month)
