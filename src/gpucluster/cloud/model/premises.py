"""What an account has beside instances: addresses, gateways and the interfaces that services put into subnets."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gpucluster.cloud.model import addresses, tagging
from gpucluster.cloud.model.gateways import Address, NatGateway
from gpucluster.cloud.model.orders import Orders
from gpucluster.cloud.model.state import atomic
from gpucluster.cloud.model.values import Interface, Refusal, SubnetPlace

NEVER = float("inf")  # an end that a reservation no longer has
_AT_ONCE = 1000  # slots that a reservation grows or shrinks by


class Premises(Orders):
    """Requests that are not about instances."""

    @atomic
    def allocate(self, tags: Mapping[str, str]) -> Address:
        """AllocateAddress; none is ever routed (RFC 2544)."""
        taken = {a.public_ip for a in self.addresses.all()}
        number = self._dice.randrange(256, 65280)
        while (ip := f"198.19.{number >> 8}.{number & 255}") in taken:
            number = self._dice.randrange(256, 65280)
        return self.addresses.put(Address(id=self._new_id("eipalloc"), public_ip=ip, tags=dict(tags)))

    @atomic
    def associate(self, allocation: str, instance_id: str, now: float, *, again: bool) -> Address:
        """AssociateAddress with the primary interface of an instance."""
        self._advance(now)
        address, instance = self.addresses.get(allocation), self._by_ids((instance_id,), now)[0]
        if address.association is not None and address.instance != instance_id and not again:
            raise Refusal(
                "Resource.AlreadyAssociated", f"resource {allocation} is already associated with another"
            )
        self.disassociate(address)
        self._show(instance_id, address.public_ip)
        return self.addresses.bind(
            address, self._new_id("eipassoc"), instance.interface_id, instance.address or "", instance_id
        )

    @atomic
    def disassociate(self, address: Address) -> None:
        """DisassociateAddress; a gateway keeps its own."""
        if address.association is None:
            return
        if address.instance is None:
            raise Refusal("AuthFailure", "You do not have permission to access the specified resource.")
        self._show(address.instance, None)
        self.addresses.unbind(address)

    @atomic
    def make_gateway(
        self,
        subnet: SubnetPlace,
        allocation: str | None,
        wanted: str | None,
        tags: Mapping[str, str],
        now: float,
    ) -> NatGateway:
        """CreateNatGateway: pending for a while; without an allocation it is a private one."""
        self._advance(now)
        address = None if allocation is None else self.addresses.get(allocation)
        if address is not None and address.association is not None:
            raise Refusal(
                "Resource.AlreadyAssociated", f"Elastic IP address [{allocation}] is already associated"
            )
        name = self._new_id("nat")
        interface = self.occupy(
            subnet,
            f"Interface for NAT Gateway {name}",
            (),
            now,
            wanted=wanted,
            public=address and address.public_ip,
        )
        association = None if address is None else self._new_id("eipassoc")
        if address is not None and association is not None:
            self.addresses.bind(address, association, interface.id, interface.address or "", None)
        return self.gateways.put(
            NatGateway(
                id=name,
                subnet=subnet,
                interface=interface.id,
                private_ip=interface.address or "",
                created_at=now,
                ready_at=now + self.timing.gateway_s,
                public=address is not None,
                allocation=allocation,
                public_ip=address and address.public_ip,
                association=association,
                tags=dict(tags),
            )
        )

    @atomic
    def end_gateway(self, gateway: str, now: float) -> NatGateway:
        """DeleteNatGateway: minutes go by, and its address is not free before (T43)."""
        self._advance(now)
        found = self.gateways.get(gateway)
        if found.ends_at is not None:
            return found
        return self.gateways.put(replace(found, ends_at=now + self.timing.gateway_s))

    @atomic
    def occupy(
        self,
        subnet: SubnetPlace,
        service: str,
        groups: Iterable[str],
        now: float,
        *,
        wanted: str | None = None,
        public: str | None = None,
    ) -> Interface:
        """An interface of a service; it takes an address of the subnet (T10)."""
        self._advance(now)
        used = self._used(subnet.id)
        addresses.check_room(subnet, used, 1, wanted)
        address = addresses.choose(subnet, used, wanted, self._dice)
        made = Interface(
            id=self._new_id("eni"),
            instance_id="",
            subnet=subnet,
            address=address,
            public_address=public,
            mac="02:01:" + ":".join(f"{int(part):02x}" for part in address.split(".")),
            groups=tuple(groups),
            tags={},
            service=service,
        )
        self._interfaces[made.id] = made
        return made

    @atomic
    def regroup(self, interface: str, groups: Iterable[str]) -> None:
        """The groups of a service's interface, as its owner asks for."""
        if interface in self._interfaces:
            self._interfaces[interface] = replace(self._interfaces[interface], groups=tuple(groups))

    @atomic
    def vacate(self, interface: str, now: float) -> None:
        """The service takes its interface away, a little later (T42)."""
        if interface in self._interfaces:
            self._interfaces[interface] = replace(
                self._interfaces[interface], gone_at=now, public_address=None
            )
        self._advance(now)

    @atomic
    def free_address(self, subnet: SubnetPlace, now: float) -> str:
        """An address of the subnet for an interface that another keeps."""
        self._advance(now)
        used = self._used(subnet.id)
        addresses.check_room(subnet, used, 1, None)
        return addresses.choose(subnet, used, None, self._dice)

    @atomic
    def free_count(self, subnet: SubnetPlace, now: float) -> int:
        """How many addresses are free (DescribeSubnets)."""
        self._advance(now)
        return addresses.room(subnet) - len(self._used(subnet.id))

    @atomic
    def change_reservation(self, reservation: str, count: int | None, ends_at: float | None) -> None:
        """ModifyCapacityReservation: at most a thousand more or fewer at a time; a block stays as it is (T25, T26)."""
        held = self.supply.reservations.get(reservation)
        if held.block:
            raise Refusal("UnsupportedOperation", "A capacity block cannot be modified.")
        if held.cancelled:
            raise Refusal(
                "InvalidCapacityReservationState", f"The capacity reservation '{held.id}' is cancelled."
            )
        if count is not None and (count < held.used or abs(count - held.total) > _AT_ONCE):
            raise Refusal("InvalidParameterValue", f"Value ({count}) for parameter instanceCount is invalid.")
        held.total = held.total if count is None else count
        if ends_at is not None:
            held.ends_at = None if ends_at == NEVER else ends_at

    @atomic
    def is_open(self, reservation: str) -> bool:
        """Whether launches join it that do not name it."""
        return self.supply.reservations.get(reservation).open

    @atomic
    def tags_of(self, resource: str) -> Mapping[str, str] | None:
        """Tags of a holding by id; None for what is no holding."""
        found = self._holdings().get(resource)
        return None if found is None else found[0]

    @atomic
    def tag_holding(self, resource: str, tags: Mapping[str, str], gone: Iterable[str]) -> None:
        """CreateTags and DeleteTags on a volume, group, address or gateway."""
        before, put = self._holdings()[resource]
        put(tagging.edit(tags, gone)(before))

    @atomic
    def holdings(self) -> dict[str, Mapping[str, str]]:
        """Every holding's tags."""
        return {name: tags for name, (tags, _) in self._holdings().items()}

    def _holdings(self) -> dict[str, tuple[Mapping[str, str], Callable[[dict[str, str]], object]]]:
        found: dict[str, tuple[Mapping[str, str], Callable[[dict[str, str]], object]]] = {}
        for volume in self.volumes.all():
            found[volume.id] = (volume.tags, lambda t, v=volume: self.volumes.put(replace(v, tags=t)))
        for group in self.placements.all():
            found[group.id] = (group.tags, lambda t, g=group: self.placements.put(replace(g, tags=t)))
        for address in self.addresses.all():
            found[address.id] = (address.tags, lambda t, a=address: self.addresses.put(replace(a, tags=t)))
        for gateway in self.gateways.all():
            found[gateway.id] = (gateway.tags, lambda t, g=gateway: self.gateways.put(replace(g, tags=t)))
        for held in self.supply.reservations.all():
            found[held.id] = (held.tags, lambda t, h=held: setattr(h, "tags", t))
        return found

    def _show(self, instance_id: str, public: str | None) -> None:
        instance = self._instances.get(instance_id)
        if instance is None:
            return
        self._instances[instance_id] = replace(instance, public_address=public)
        interface = self._interfaces.get(instance.interface_id)
        if interface is not None:
            self._interfaces[interface.id] = replace(interface, public_address=public)
