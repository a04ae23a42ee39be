"""The package sources of an image: the host's own apt sources with another suite.

So an image uses the mirror or proxy of this host, and our files hold no address.
"""

import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpucluster import shell
from gpucluster.errors import HostError
from gpucluster.sandbox.requirements import KEYRING

APT = Path("/etc/apt")
_CARRIED = re.compile(r"^(Acquire::(?:http|https|Check-Valid-Until|Check-Date)\S*) \"(.+)\";$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One entry of apt's sources; only the fields that are used."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str | None


def debian_lines(apt: Path, *, suite: str) -> tuple[str, ...]:
    """Return `deb` lines for `suite` from the host's sources below `apt`, or raise HostError."""
    codename = _codename()
    found = [s for s in host_sources(apt) if any(_is_of(codename, name) for name in s.suites)]
    lines = swapped(found, codename=codename, suite=suite)
    if not lines:
        raise HostError(
            f"no entry for Debian's {codename} in {apt}/sources.list*, so no mirror is known for {suite}",
            next_step="run it on a Debian machine, or add a Debian mirror to apt's sources",
        )
    return lines


def host_sources(apt: Path) -> tuple[Source, ...]:
    """Read sources.list and sources.list.d, in both of apt's formats."""
    folder = apt / "sources.list.d"
    plain = [apt / "sources.list", *sorted(folder.glob("*.list"))]
    stanzas = sorted(folder.glob("*.sources"))
    found = [s for p in plain if p.is_file() for s in one_line(p.read_text())]
    return (*found, *(s for p in stanzas for s in deb822(p.read_text())))


def one_line(text: str) -> tuple[Source, ...]:
    """Parse `deb [options] URI SUITE COMPONENT...` lines."""
    found: list[Source] = []
    for line in text.splitlines():
        match = re.match(r"^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.*\S)", line.strip())
        if match is None:
            continue
        options, uri, suite, components = match.groups()
        signed = re.search(r"signed-by=(\S+)", options or "")
        found.append(
            Source(
                uri=uri,
                suites=(suite,),
                components=tuple(components.split()),
                signed_by=signed[1] if signed else None,
            )
        )
    return tuple(found)


def deb822(text: str) -> tuple[Source, ...]:
    """Parse stanzas of `Types:`, `URIs:`, `Suites:`, `Components:`, `Signed-By:`."""
    found: list[Source] = []
    for stanza in re.split(r"\n\s*\n", text):
        lines = (line for line in stanza.splitlines() if line and not line.startswith(("#", " ", "\t")))
        fields = {
            k.strip().lower(): v.strip() for k, v in (line.split(":", 1) for line in lines if ":" in line)
        }
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes") == "no":
            continue
        signed = fields.get("signed-by") or None  # an inline key has an empty first line
        suites, components = fields.get("suites", "").split(), fields.get("components", "").split()
        found += [
            Source(uri=uri, suites=tuple(suites), components=tuple(components), signed_by=signed)
            for uri in fields.get("uris", "").split()
        ]
    return tuple(found)


def swapped(sources: Iterable[Source], *, codename: str, suite: str) -> tuple[str, ...]:
    """Return the sources' `deb` lines with `codename` replaced by `suite`: main only, each once."""
    lines: dict[str, None] = {}
    for source in sources:
        keyring = source.signed_by or str(KEYRING)
        for name in source.suites:
            if "main" in source.components and _is_of(codename, name):
                ours = suite + name.removeprefix(codename)
                lines[f"deb [signed-by={keyring}] {source.uri} {ours} main"] = None
    return tuple(lines)


def apt_options() -> tuple[str, ...]:
    """Return the host's proxy and date options, as apt.conf lines for the image's build only."""
    dump = shell.run(["apt-config", "dump"]).stdout
    return carried(dump)


def carried(dump: str) -> tuple[str, ...]:
    """Select from `apt-config dump` what a build on this network needs."""
    matches = (_CARRIED.match(line) for line in dump.splitlines())
    return tuple(f'{m[1]} "{m[2]}"' for m in matches if m is not None)


def _is_of(codename: str, suite: str) -> bool:
    return suite in (codename, f"{codename}-updates", f"{codename}-security")


def _codename() -> str:
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "")
