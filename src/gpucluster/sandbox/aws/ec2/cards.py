"""The network interfaces of a launch, checked against the network cards of the machine type (T29, T31)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from gpucluster.plan.model import InterfaceKind
from gpucluster.sandbox.aws.ec2.state.values import NetworkCardRequest, Refusal

_EFA = frozenset({InterfaceKind.EFA, InterfaceKind.EFA_ONLY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """The limits of a machine's network cards, by index."""

    kinds: tuple[frozenset[str], ...]
    most: tuple[int, ...]  # interfaces of each card
    efa: int  # on all cards together


def is_true(value: Any) -> bool:
    """Return whether a boolean of a query is true: it may be a word."""
    return str(value).lower() == "true"


def checked(machine: str, asked: Sequence[Mapping[str, Any]], cards: Cards) -> tuple[NetworkCardRequest, ...]:
    """The interfaces, primary first, or a Refusal. Which of the two codes EC2 uses is not verified."""
    nics = sorted((_nic(one) for one in asked), key=lambda n: (n.card, n.device))
    _check_primary(nics)
    for nic in nics:
        _check_card(machine, nic, nics, cards)
    if sum(nic.kind in _EFA for nic in nics) > cards.efa:
        raise _wrong(f"{machine} supports at most {cards.efa} EFA interfaces.")
    if len(nics) > 1 and any(is_true(one.get("AssociatePublicIpAddress")) for one in asked):
        raise Refusal(
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple network "
            "interfaces.",
        )
    return tuple(nics)


def _nic(one: Mapping[str, Any]) -> NetworkCardRequest:
    if one.get("NetworkInterfaceId"):
        raise Refusal("UnsupportedOperation", "the sandbox launches with no interface that exists already")
    kind = str(one.get("InterfaceType") or InterfaceKind.ENA.value)
    if kind not in {k.value for k in InterfaceKind}:
        raise Refusal("InvalidParameterValue", f"Invalid value '{kind}' for InterfaceType.")
    return NetworkCardRequest(
        card=int(one.get("NetworkCardIndex") or 0),
        device=int(one.get("DeviceIndex") or 0),
        kind=InterfaceKind(kind),
        groups=tuple(cast(Iterable[str], one.get("Groups") or ())),
    )


def _check_primary(nics: Sequence[NetworkCardRequest]) -> None:
    pairs = [(n.card, n.device) for n in nics]
    twice = sorted({pair for pair in pairs if pairs.count(pair) > 1})
    if twice:
        card, device = twice[0]
        raise Refusal(
            "InvalidParameterValue",
            f"Duplicate device index {device} on network card {card}: each may be used once.",
        )
    if pairs[0] != (0, 0):
        raise Refusal(
            "InvalidParameterValue", "A primary interface is on network card 0 with device index 0."
        )
    if nics[0].kind is InterfaceKind.EFA_ONLY:
        raise _wrong("An efa-only interface has no address and cannot be the primary one.")


def _check_card(
    machine: str, nic: NetworkCardRequest, nics: Iterable[NetworkCardRequest], cards: Cards
) -> None:
    if nic.card >= len(cards.kinds):
        raise Refusal(
            "InvalidParameterValue", f"{machine} has no network card {nic.card}: it has {len(cards.kinds)}."
        )
    if nic.kind.value not in cards.kinds[nic.card]:
        raise _wrong(
            f"Network card {nic.card} of {machine} does not support interfaces of type {nic.kind.value}."
        )
    on_card = [n for n in nics if n.card == nic.card]
    if len(on_card) > cards.most[nic.card]:
        raise Refusal(
            "AttachmentLimitExceeded",
            f"Network card {nic.card} of {machine} supports at most {cards.most[nic.card]} interfaces.",
        )
    if sum(n.kind in _EFA for n in on_card) > 1:
        raise _wrong(f"Network card {nic.card} of {machine} supports one EFA interface.")


def _wrong(text: str) -> Refusal:
    return Refusal("InvalidParameterCombination", text)
