"""The addresses of hosts: those of the files, and made-up ones."""

import ipaddress
from dataclasses import dataclass, field

from pydantic_core import PydanticCustomError

from gpucluster.importer.site import Settings
from gpucluster.spec.host_fields import parse_host_address

MADE_UP = ipaddress.IPv4Network("198.18.0.0/15")  # RFC 2544: for tests, no host of the internet


@dataclass(slots=True)
class Addresses:
    """The addresses of hosts: those of the files, and made-up ones for hosts without one."""

    used: set[str]
    given: set[str] = field(default_factory=set[str])
    made: int = 0
    _next: int = 0

    def of(self, address: str | None) -> str:
        """The address of the next host. A second host with one address gets a made-up one: several slurmds ran there."""
        if address is not None and address not in self.given:
            self.given.add(address)
            return address
        self.made += 1
        while True:
            self._next += 1
            found = str(MADE_UP[self._next])
            if found not in self.used:
                self.used.add(found)
                return found


def address_of(settings: Settings) -> str | None:
    one = settings.get("nodeaddr")
    return None if one is None else reachable(one.value)


def reachable(text: str) -> str | None:
    """An address that a spec takes; a name, and an address of the machine itself, is none."""
    try:
        return parse_host_address(text)
    except PydanticCustomError:
        return None
