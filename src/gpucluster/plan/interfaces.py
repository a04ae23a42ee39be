"""Network interfaces of a machine type, one a network card, as T29 lays them out. Pure."""

from gpucluster.catalog import Machine
from gpucluster.plan.model import Interface, InterfaceKind

_PRIMARY = Interface(card=0, device=0, kind=InterfaceKind.ENA)


def interfaces_of(machine: Machine) -> tuple[Interface, ...]:
    """Card 0 has the one with an address; an EFA needs none, so a node costs one address. None: no EFA at all."""
    if not machine.efa_cards:
        return ()
    fabric = [_efa(card) for card in machine.efa_cards if card or machine.card_interfaces > 1]
    return (_PRIMARY, *fabric[: machine.efa])


def _efa(card: int) -> Interface:
    """On card 0 it stands beside the primary."""
    return Interface(card=card, device=0 if card else 1, kind=InterfaceKind.EFA_ONLY)
