"""Check families of protocols that no part of a cluster needs. Any user loads their modules by opening a socket.

Each is a part of the kernel that few look after, and the TCP sockets inside those of SMC and RDS belong to the kernel, so that no
rule of a packet filter sees the user. Our image blocks them (`agent/units/etc/modprobe.d`); an existing host is the site's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, passed, warned
from gpucluster.text import listed, short


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """`aliases`: what the kernel asks modprobe for (net/socket.c). `protocols`: its names in /proc/net/protocols."""

    aliases: tuple[str, ...]
    protocols: tuple[str, ...]


# module that `install` blocks -> family. The numbers are those of include/linux/socket.h and include/uapi/linux/in.h; since Linux
# 6.11 SMC is a protocol of AF_INET, too (net/smc/smc_inet.c).
FAMILIES: Mapping[str, _Family] = {
    "smc": _Family(
        aliases=("net-pf-43", "net-pf-2-proto-256-type-1", "net-pf-10-proto-256-type-1"),
        protocols=("SMC", "SMC6"),
    ),
    "rds": _Family(aliases=("net-pf-21",), protocols=("RDS",)),
    "tipc": _Family(aliases=("net-pf-30",), protocols=("TIPC",)),
    "dccp": _Family(
        aliases=("net-pf-2-proto-33-type-6", "net-pf-10-proto-33-type-6"), protocols=("DCCP", "DCCPv6")
    ),
}
_FILE = "/etc/modprobe.d/zz-protocols.conf"
_LOADS = """\
PATH=$PATH:/usr/sbin:/sbin
if command -v modprobe >/dev/null; then
  for alias in "$@"; do echo "= $alias"; modprobe --dry-run --show-depends -- "$alias" 2>/dev/null || true; done
fi
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolsWant:
    """`blocked`: the machine's image is ours and blocks them, so an open family is a fault."""

    blocked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFamilies:
    """Names of modules: those that the kernel has, and those that it loads for any user's socket."""

    present: tuple[str, ...]
    loadable: tuple[str, ...]


def query_protocols(_want: ProtocolsWant) -> tuple[Query, ...]:
    aliases = (alias for family in FAMILIES.values() for alias in family.aliases)
    return (
        Query(argv=("sh", "-c", _LOADS, "sh", *aliases)),
        Query(argv=("cat", "/proc/net/protocols")),
        Query(argv=("cat", "/proc/sys/kernel/modules_disabled")),
    )


def parse_protocols(got: tuple[QueryOutput, ...]) -> OpenFamilies:
    """A kernel without modules has no file that says whether it loads more."""
    loads, protocols, disabled = got
    names = {line.split()[0] for line in protocols.text().splitlines() if line.strip()}
    if "protocol" not in names:
        raise ParseError("/proc/net/protocols has no head")
    loaded = _loaded(loads.text())
    closed = disabled.stdout.strip() == "1"
    present = tuple(name for name, one in FAMILIES.items() if names.intersection(one.protocols))
    return OpenFamilies(
        present=present,
        loadable=tuple(
            name
            for name, one in FAMILIES.items()
            if not closed and name not in present and loaded.intersection(one.aliases)
        ),
    )


def _loaded(text: str) -> frozenset[str]:
    """The aliases that modprobe loads modules for. An `install` line is what somebody set in the place of one."""
    known = {alias for family in FAMILIES.values() for alias in family.aliases}
    kinds: dict[str, set[str]] = {}
    alias = ""
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "=" and rest in known:
            alias = rest
        elif alias and word in ("insmod", "builtin", "install"):
            kinds.setdefault(alias, set()).add(word)
        else:
            raise ParseError(f"modprobe printed {short(line, 80)}")
    return frozenset(one for one, found in kinds.items() if "insmod" in found and "install" not in found)


def evaluate_protocols(found: OpenFamilies, want: ProtocolsWant) -> CheckResult:
    expected = f"no user opens sockets of {listed(FAMILIES)}"
    words = (
        *((f"the kernel has {listed(found.present)}",) if found.present else ()),
        *((f"any user's socket loads the modules of {listed(found.loadable)}",) if found.loadable else ()),
    )
    if not words:
        return passed(expected)
    names = (*found.present, *found.loadable)
    remedy = f"on {{machine}}: printf 'install %s /bin/false\\n' {' '.join(names)} >>{_FILE}"
    if found.present:
        remedy += f"; modprobe -r {' '.join(found.present)}"
    remedy += "  # leave out what a program of the site needs; one that is in use goes at the next boot"
    if want.blocked:
        return failed("; ".join(words), expected, names, remedy)
    return warned("; ".join(words), expected, remedy)
