"""Public addresses and NAT gateways. A deleted gateway holds its address until the deletion ends (T43)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from gpucluster.sandbox.aws.ec2.state.values import Refusal, SubnetRef

_SHOWN_S = 3600.0  # EC2 lists a deleted gateway so long


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An Elastic IP address and the interface that it is associated with."""

    id: str
    public_ip: str
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    association: str | None = None
    instance: str | None = None
    interface: str | None = None
    private_ip: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NatGateway:
    """One NAT gateway; `ends_at` is the end of its deletion."""

    id: str
    subnet: SubnetRef
    interface: str
    private_ip: str
    created_at: float
    ready_at: float
    public: bool = True
    allocation: str | None = None
    public_ip: str | None = None
    association: str | None = None
    ends_at: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])

    def state(self, now: float) -> str:
        """The state as EC2 names it."""
        if self.ends_at is not None:
            return "deleted" if now >= self.ends_at else "deleting"
        return "available" if now >= self.ready_at else "pending"


class Addresses:
    """All Elastic IP addresses by allocation id."""

    def __init__(self) -> None:
        self._known: dict[str, Address] = {}

    def put(self, address: Address) -> Address:
        """Add or replace an address."""
        self._known[address.id] = address
        return address

    def all(self) -> tuple[Address, ...]:
        """All addresses, sorted."""
        return tuple(self._known[i] for i in sorted(self._known))

    def __contains__(self, allocation: object) -> bool:
        return allocation in self._known

    def get(self, allocation: str) -> Address:
        """One address by id; a Refusal if it does not exist."""
        found = self._known.get(allocation)
        if found is None:
            raise Refusal("InvalidAllocationID.NotFound", f"The allocation ID '{allocation}' does not exist")
        return found

    def bound(self, association: str) -> Address:
        """The address of an association."""
        found = next((a for a in self._known.values() if a.association == association), None)
        if found is None:
            raise Refusal(
                "InvalidAssociationID.NotFound", f"The association ID '{association}' does not exist"
            )
        return found

    def bind(
        self, address: Address, association: str, interface: str, private_ip: str, instance: str | None
    ) -> Address:
        """Associate the address with an interface."""
        return self.put(
            replace(
                address,
                association=association,
                interface=interface,
                private_ip=private_ip,
                instance=instance,
            )
        )

    def unbind(self, address: Address) -> Address:
        """Disassociate the address."""
        return self.put(replace(address, association=None, interface=None, private_ip=None, instance=None))

    def release(self, allocation: str) -> None:
        """Release the address; an associated one is refused."""
        if self.get(allocation).association is not None:
            raise Refusal("InvalidIPAddress.InUse", f"Address with allocation id {allocation} is in use.")
        del self._known[allocation]


class Gateways:
    """All NAT gateways by id."""

    def __init__(self) -> None:
        self._known: dict[str, NatGateway] = {}

    def put(self, gateway: NatGateway) -> NatGateway:
        """Add or replace a gateway."""
        self._known[gateway.id] = gateway
        return gateway

    def all(self) -> tuple[NatGateway, ...]:
        """All gateways, sorted, with those that were deleted in the last hour."""
        return tuple(self._known[i] for i in sorted(self._known))

    def __contains__(self, gateway: object) -> bool:
        return gateway in self._known

    def serves(self, gateway: str, now: float) -> bool:
        """Whether the gateway exists and is not deleted."""
        found = self._known.get(gateway)
        return found is not None and found.state(now) != "deleted"

    def get(self, gateway: str) -> NatGateway:
        """One gateway by id; a Refusal if it does not exist."""
        found = self._known.get(gateway)
        if found is None:
            raise Refusal("NatGatewayNotFound", f"The Nat Gateway {gateway} was not found")
        return found

    def advance(self, now: float, ended: Callable[[NatGateway], None]) -> None:
        """Call `ended` once for each gateway whose deletion is over, and forget old ones."""
        for gateway in self.all():
            if gateway.ends_at is None or now < gateway.ends_at:
                continue
            if gateway.interface:
                ended(gateway)
                self.put(replace(gateway, interface="", association=None))
            if now >= gateway.ends_at + _SHOWN_S:
                del self._known[gateway.id]
