"""What the account has in addition to instances: addresses, gateways, and interfaces that services create in subnets."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gpucluster.sandbox.aws.ec2.state import addresses
from gpucluster.sandbox.aws.ec2.state import tags as tagging
from gpucluster.sandbox.aws.ec2.state.gateways import Address, NatGateway
from gpucluster.sandbox.aws.ec2.state.scenario import ScenarioControls
from gpucluster.sandbox.aws.ec2.state.store import atomic
from gpucluster.sandbox.aws.ec2.state.values import Interface, Refusal, SubnetRef

NEVER = float("inf")  # marks an end time that is to be removed
_AT_ONCE = 1000  # the most slots that one call adds to or removes from a reservation


class AccountNetwork(ScenarioControls):
    """Requests about other resources than instances."""

    @atomic
    def allocate(self, tags: Mapping[str, str]) -> Address:
        """AllocateAddress. The address is never routed (RFC 2544)."""
        taken = {a.public_ip for a in self.addresses.all()}
        number = self._random.randrange(256, 65280)
        while (ip := f"198.19.{number >> 8}.{number & 255}") in taken:
            number = self._random.randrange(256, 65280)
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
        """DisassociateAddress. The address of a NAT gateway cannot be disassociated."""
        if address.association is None:
            return
        if address.instance is None:
            raise Refusal("AuthFailure", "You do not have permission to access the specified resource.")
        self._show(address.instance, None)
        self.addresses.unbind(address)

    @atomic
    def make_gateway(
        self,
        subnet: SubnetRef,
        allocation: str | None,
        wanted: str | None,
        tags: Mapping[str, str],
        now: float,
    ) -> NatGateway:
        """CreateNatGateway: pending for a while. Without an allocation it is private."""
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
        """DeleteNatGateway: it takes minutes, and the address stays in use until then (T43)."""
        self._advance(now)
        found = self.gateways.get(gateway)
        if found.ends_at is not None:
            return found
        return self.gateways.put(replace(found, ends_at=now + self.timing.gateway_s))

    @atomic
    def occupy(
        self,
        subnet: SubnetRef,
        service: str,
        groups: Iterable[str],
        now: float,
        *,
        wanted: str | None = None,
        public: str | None = None,
    ) -> Interface:
        """Create an interface of a service; it takes an address of the subnet (T10)."""
        self._advance(now)
        used = self._used(subnet.id)
        reserved = self.reserved(subnet.id)
        addresses.check_room(subnet, used, 1, wanted, reserved)
        address = addresses.choose(subnet, used, wanted, self._random, reserved)
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
        """Set the security groups of a service's interface."""
        if interface in self._interfaces:
            self._interfaces[interface] = replace(self._interfaces[interface], groups=tuple(groups))

    @atomic
    def vacate(self, interface: str, now: float) -> None:
        """Delete a service's interface; this takes effect a little later (T42)."""
        if interface in self._interfaces:
            self._interfaces[interface] = replace(
                self._interfaces[interface], gone_at=now, public_address=None
            )
        self._advance(now)

    @atomic
    def free_address(self, subnet: SubnetRef, now: float) -> str:
        """Take an address of the subnet for an interface that moto stores."""
        self._advance(now)
        used = self._used(subnet.id)
        reserved = self.reserved(subnet.id)
        addresses.check_room(subnet, used, 1, None, reserved)
        return addresses.choose(subnet, used, None, self._random, reserved)

    @atomic
    def free_count(self, subnet: SubnetRef, now: float) -> int:
        """The number of free addresses (DescribeSubnets)."""
        self._advance(now)
        return addresses.room(subnet) - len(self._used(subnet.id))

    @atomic
    def change_reservation(self, reservation: str, count: int | None, ends_at: float | None) -> None:
        """ModifyCapacityReservation: at most 1,000 slots more or fewer in one call; a block cannot be changed (T25, T26)."""
        reserved = self.supply.reservations.owned(reservation)
        if reserved.block:
            raise Refusal("UnsupportedOperation", "A capacity block cannot be modified.")
        if reserved.cancelled:
            raise Refusal(
                "InvalidCapacityReservationState", f"The capacity reservation '{reserved.id}' is cancelled."
            )
        if count is not None and (count < reserved.used or abs(count - reserved.total) > _AT_ONCE):
            raise Refusal("InvalidParameterValue", f"Value ({count}) for parameter instanceCount is invalid.")
        reserved.total = reserved.total if count is None else count
        if ends_at is not None:
            reserved.ends_at = None if ends_at == NEVER else ends_at

    @atomic
    def owner_of_reservation(self, reservation: str) -> str:
        """The account that owns it; "" for this account, and for an unknown id."""
        return next((reserved.owner for reserved in self.supply.reservations.known((reservation,))), "")

    @atomic
    def is_open(self, reservation: str) -> bool:
        """Whether launches join it that do not name it."""
        return self.supply.reservations.get(reservation).open

    @atomic
    def tags_of(self, resource: str) -> Mapping[str, str] | None:
        """The tags of a resource by id; None if it is not stored here."""
        found = self._holdings().get(resource)
        return None if found is None else found[0]

    @atomic
    def tag_holding(self, resource: str, tags: Mapping[str, str], gone: Iterable[str]) -> None:
        """CreateTags and DeleteTags on a volume, placement group, address or gateway."""
        before, put = self._holdings()[resource]
        put(tagging.edit(tags, gone)(before))

    @atomic
    def holdings(self) -> dict[str, Mapping[str, str]]:
        """The tags of every stored resource."""
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
        for reserved in self.supply.reservations.all():
            found[reserved.id] = (reserved.tags, lambda t, h=reserved: setattr(h, "tags", t))
        return found

    def _show(self, instance_id: str, public: str | None) -> None:
        instance = self._instances.get(instance_id)
        if instance is None:
            return
        self._instances[instance_id] = replace(instance, public_address=public)
        interface = self._interfaces.get(instance.interface_id)
        if interface is not None:
            self._interfaces[interface.id] = replace(interface, public_address=public)
