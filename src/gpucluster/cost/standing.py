"""What stands beside head and nodes, all month and whatever runs: login machines, the network's ways out, storage."""

from collections.abc import Iterator

from gpucluster.cost.amount import Amount
from gpucluster.cost.price_list import Line, PriceList
from gpucluster.plan.model import ClusterPlan, Mount, Network, Volume


def standing(plan: ClusterPlan, price: PriceList) -> Iterator[Line]:
    """Only of what is made: what is there already, or is Kubernetes' alone, is paid by whoever makes it."""
    if plan.aws is None or plan.slurm is None:
        return
    yield from _login(plan, price)
    yield from _network(plan.aws.network, price)
    for volume in plan.head.volumes if plan.head else ():
        yield _volume(volume, price)
    for mount in plan.storage:
        yield from _mount(mount, price)


def _login(plan: ClusterPlan, price: PriceList) -> Iterator[Line]:
    login = plan.login
    if login is None or plan.aws is None:
        return
    month = price.month(login.machine)
    public = {
        s.zone for s in plan.aws.network.subnets if s.public_cidr is not None or s.public_id is not None
    }
    if login.zone in public:
        month += price.service("public address", "public-address-hour")
    yield _line("login", "login", month.times(len(login.names)))


def _network(network: Network, price: PriceList) -> Iterator[Line]:
    if network.nat:
        each = price.service("NAT gateway", "nat-hour") + price.service(
            "public address", "public-address-hour"
        )
        yield _line("network", "nat", each.times(len(network.nat)))
    if network.endpoints:
        count = len(network.endpoints) * len(network.subnets)  # one a zone, each
        yield _line("network", "endpoints", price.service("endpoint", "endpoint-hour").times(count))


def _volume(volume: Volume, price: PriceList) -> Line:
    month = price.service(f"EBS of {volume.path}", "gp3-gib-month").times(volume.size_gib)
    return _line("storage", volume.path, month)


def _mount(mount: Mount, price: PriceList) -> Iterator[Line]:
    if mount.efs is not None and mount.efs.id is None:
        yield _line("storage", mount.path, Amount(unknown=(f"EFS of {mount.path} ({_efs_rates(price)})",)))
    if mount.lustre is not None and mount.lustre.id is None:
        row = f"fsx-lustre-{mount.lustre.throughput}-gib-month"
        month = price.service(f"FSx of {mount.path}", row).times(mount.lustre.size_gib)
        yield _line("storage", mount.path, month)


def _efs_rates(price: PriceList) -> str:
    """Nobody knows beforehand how much is stored, and elastic throughput is paid by what passes."""
    rows = [price.prices.services.get(f"efs-{row}") for row in ("gib-month", "read-gib", "written-gib")]
    if price.region != price.prices.region or None in rows:
        return "by what is stored, read and written"
    stored, read, written = rows
    return f"{stored} {price.prices.currency} a GiB stored, {read} read, {written} written"


def _line(kind: str, name: str, month: Amount) -> Line:
    return Line(kind=kind, name=name, least=month, most=month)
