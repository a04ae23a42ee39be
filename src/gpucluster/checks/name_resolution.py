"""Check that a machine resolves the names of the heads and, on AWS, a name of AWS. `peer_names` compares the lines of /etc/hosts."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gpucluster.checks import remedies
from gpucluster.checks.check import (
    TIMED_OUT,
    CheckResult,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
)
from gpucluster.text import short

DNS = "dns"  # the culprit where no name of DNS resolves
_ANSWER_S = 5
_LOOPBACK = "127."
_RUN = f"""\
for name; do
  (got=$(timeout {_ANSWER_S} getent ahostsv4 "$name"); code=$?
  echo "$name $code" $(printf '%s\\n' "$got" | cut -d ' ' -f 1 | sort -u)) &
done
wait
grep '^hosts:' /etc/nsswitch.conf || echo hosts:
"""
_LINE = re.compile(r"([A-Za-z0-9.-]{1,253}) ([0-9]{1,3})((?: [0-9.]{7,15})*) ?")
_NO_FILES = "grep -q ^hosts: /etc/nsswitch.conf || echo hosts: >>/etc/nsswitch.conf; sed -i 's/^hosts:/hosts: files/' /etc/nsswitch.conf"
_NO_DNS = "sed -i '/^hosts:/s/$/ dns/' /etc/nsswitch.conf"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionWant:
    """Name of a head -> its address; names of DNS that must have any address. `server`: AWS's own name server."""

    cluster: dict[str, str]
    dns: tuple[str, ...] = ()
    server: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Name -> getent's exit code and the addresses; the sources of nsswitch.conf."""

    names: dict[str, tuple[int, tuple[str, ...]]]
    sources: tuple[str, ...]


def query_names(want: ResolutionWant) -> tuple[Query, ...]:
    return (Query(argv=("sh", "-c", _RUN, "sh", *want.cluster, *want.dns), limit_s=_ANSWER_S + 5.0),)


def parse_names(got: tuple[QueryOutput, ...]) -> Resolution:
    """A line for each name, then the line `hosts:` of nsswitch.conf."""
    text, mark, sources = got[0].text().partition("hosts:")
    if not mark:
        raise ParseError(f"the answer has no end: {short(text, 60)!r}")
    names: dict[str, tuple[int, tuple[str, ...]]] = {}
    for line in text.splitlines():
        row = _LINE.fullmatch(line)
        if row is None:
            raise ParseError(f"getent printed {short(line, 60)!r}")
        names[row[1]] = (int(row[2]), tuple(row[3].split()))
    return Resolution(names=names, sources=tuple(sources.split()))


def evaluate_names(found: Resolution, want: ResolutionWant) -> CheckResult:
    """Culprits are names of the cluster, and `dns`. A head's own name may have a loopback address, as Debian's installer writes it."""
    names = (*want.cluster, *want.dns)
    if absent := [name for name in names if name not in found.names]:
        raise ParseError(f"getent printed nothing of {listed(absent)}")
    faults = {name: words for name in names if (words := _fault(name, found, want))}
    expected = f"{listed(names)} resolve"
    if not faults:
        return passed(expected)
    culprits = dict.fromkeys(name if name in want.cluster else DNS for name in faults)
    remedy = "on {machine}: " + "; ".join(_steps(culprits.keys(), found, want))
    return failed(listed(list(faults.values())), expected, tuple(culprits), remedy)


def _fault(name: str, found: Resolution, want: ResolutionWant) -> str:
    code, addresses = found.names[name]
    if code == TIMED_OUT:
        return f"{name} has no answer within {_ANSWER_S} s"
    if code != 0 or not addresses:
        return f"{name} does not resolve"
    address = want.cluster.get(name, "")
    if not address or address in addresses or all(one.startswith(_LOOPBACK) for one in addresses):
        return ""
    return f"{name} is {listed(addresses)}, not {address}"


def _steps(culprits: Collection[str], found: Resolution, want: ResolutionWant) -> Iterator[str]:
    of_cluster = [name for name in culprits if name != DNS]
    if of_cluster and "files" not in found.sources:
        yield _NO_FILES
    elif of_cluster:
        yield remedies.restart("gpucluster-agent")
    if DNS in culprits and not {"dns", "resolve"} & set(found.sources):
        yield _NO_DNS
    elif DNS in culprits:
        yield f"systemctl restart systemd-resolved || true; getent ahostsv4 {want.dns[0]} || {{ rm -f /etc/resolv.conf; echo nameserver {want.server} >/etc/resolv.conf; }}"
