"""Field types of existing hosts and users: addresses, hostlists, keys, uids."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.spec.fields import IPV4, parse_address, parse_text, refuse
from gpucluster.text import Form, quoted

LONGEST_HOSTLIST = 65_536  # characters; names without a pattern are longer than a range
FABRICS = ("infiniband", "roce", "ethernet")
FIRST_UID, LAST_UID = 1000, 2_000_000_000
SYSTEM_UIDS = range(
    60_000, 65_536
)  # Debian reserves 60000-64999 for packages (slurm is 64030) and 65534 for nobody
KEY_KINDS = (
    "ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
)  # fmt: skip
_HOST = Form(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_USER = Form(r"[a-z](?:[a-z0-9._-]{0,29}[a-z0-9_-])?")
_KEY = Form(
    r"(\S+) ([A-Za-z0-9+/]{16,8192}={0,2})(?: ([ -z|~]{1,100}))?"
)  # no brace: Ansible would read it as a template
_OPENSSH_PRIVATE = "b3BlbnNzaC1rZXktdj"  # "openssh-key-v" in base64: the start of a private key
_ED25519_BYTES = 32
OTHERS_NAMES = (
    frozenset(  # words with a meaning in /etc/hosts, in Ansible's groups or in NodeName of slurm.conf
        (
            "localhost",
            "ip6-localhost",
            "ip6-loopback",
            "ip6-allnodes",
            "ip6-allrouters",
            "all",
            "ungrouped",
            "default",
        )
    )
)
_REACH = (  # kind of the address, and why ssh cannot connect to it
    ("is_unspecified", "it is no host's"),
    ("is_loopback", "it is each machine's own"),
    ("is_multicast", "it is a group's"),
    ("is_link_local", "it is not routed, and the metadata service of clouds is there"),
    ("is_reserved", "nobody has it"),
)


def parse_host_name(value: object) -> str:
    """Parse a short host name, as `hostname -s` prints it."""
    text = parse_text(value)
    if not _HOST.fullmatch(text) or text.isdecimal():
        raise refuse(
            "bad-host-name",
            f"{quoted(text)} is not a short host name of a-z, 0-9 and '-', at most 63 characters",
        )
    if text in OTHERS_NAMES:
        raise refuse(
            "reserved-name",
            f"{quoted(text)} cannot be a host name: it has another meaning in Ansible, Slurm or /etc/hosts",
        )
    return text


def parse_host_address(value: object) -> str:
    """Parse an IPv4 address that ssh can connect to."""
    text = parse_address(value)
    address = ipaddress.IPv4Address(text)
    why = next((why for kind, why in _REACH if getattr(address, kind)), None)
    if why is None and address in ipaddress.IPv4Network("0.0.0.0/8"):
        why = "it is no host's"
    if why is not None:
        raise refuse("address-out-of-reach", f"ssh cannot reach {quoted(text)}: {why}")
    return text


def parse_hosts(value: object) -> tuple[str, ...]:
    """Parse the names of a hostlist, in order."""
    return _hostlist(value, parse_host_name)


def parse_addresses(value: object) -> tuple[str, ...]:
    """Parse the addresses of a hostlist, in order."""
    return _hostlist(value, parse_host_address)


def parse_user_name(value: object) -> str:
    text = parse_text(value)
    if not _USER.fullmatch(text):
        raise refuse(
            "bad-user-name",
            f"{quoted(text)} is not a user's name: use a-z, 0-9, '.', '_' and '-', beginning with a letter, not ending with '.', at most 31 characters",
        )
    return text


def parse_uid(value: object) -> int:
    uid = number(FIRST_UID, LAST_UID)(value)
    if uid in SYSTEM_UIDS:
        raise refuse(
            "out-of-range",
            f"{uid} is reserved for the operating system ({SYSTEM_UIDS[0]} to {SYSTEM_UIDS[-1]})",
        )
    return uid


def parse_key(value: object) -> str:
    """Parse an OpenSSH public key. Its first bytes must repeat the key type."""
    text = parse_text(value).strip()
    if holds_private_key(text):
        raise refuse(
            "private-key",
            "this is a private key, which belongs in no file of others; write the .pub file's line",
        )
    match = _KEY.fullmatch(text)
    if match is None or match[1] not in KEY_KINDS or not _is_of(match[1], match[2]):
        raise refuse("bad-key", f"{quoted(text)} is not a public key such as 'ssh-ed25519 AAAA… name'")
    return text


def holds_private_key(text: str) -> bool:
    """Return whether a text looks like a private key, with or without its header."""
    return "PRIVATE KEY" in text or _OPENSSH_PRIVATE in text


def parse_fabric(value: object) -> str:
    text = parse_text(value)
    if text not in FABRICS:
        raise refuse("bad-fabric", f"{quoted(text)} is not a fabric; expected {', '.join(FABRICS)}")
    return text


def number(least: int, most: int) -> Callable[[object], int]:
    """Return a parser of whole numbers."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            found = "nothing" if value is None else quoted(value)
            raise refuse("bad-type", f"expected a whole number, found {found}")
        if not least <= value <= most:
            raise refuse("out-of-range", f"{value} is not between {least} and {most}")
        return value

    return parse


def _hostlist(value: object, parse: Callable[[object], str]) -> tuple[str, ...]:
    from gpucluster.slurm.hostlist import (  # noqa: PLC0415  only a spec of hosts has hostlists
        SLURM_MOST,
        HostlistError,
        HostlistTooLargeError,
        expand,
    )

    text = parse_text(value)
    try:
        names = expand(text, most=SLURM_MOST, longest=LONGEST_HOSTLIST)
    except HostlistTooLargeError as error:
        raise refuse("hostlist-too-large", f"{quoted(text)} is too large for a pool: {error}") from None
    except HostlistError as error:
        raise refuse("bad-hostlist", f"{quoted(text)} is not a hostlist: {error}") from None
    return tuple(parse(name) for name in names)


def _is_of(kind: str, body: str) -> bool:
    """Return whether the key is complete and of its type. The data is a list of fields, each after its length in four bytes."""
    try:
        raw = base64.b64decode(body, validate=True)
    except (ValueError, binascii.Error):
        return False
    words = list[bytes]()
    while raw:
        length = int.from_bytes(raw[:4])
        if len(raw) < 4 + length:
            return False  # the end of the pasted key is missing
        words.append(raw[4 : 4 + length])
        raw = raw[4 + length :]
    if kind == "ssh-ed25519":
        return len(words) == 2 and words[0] == kind.encode() and len(words[1]) == _ED25519_BYTES
    return len(words) > 2 and words[0] == kind.encode()


def _number(least: int, most: int) -> tuple[BeforeValidator, WithJsonSchema]:
    return BeforeValidator(number(least, most)), WithJsonSchema(
        {"type": "integer", "minimum": least, "maximum": most}
    )


_TAKEN = "|".join(sorted(OTHERS_NAMES))
_HOST_SCHEMA = WithJsonSchema({"type": "string", "pattern": f"^(?![0-9]+$)(?!(?:{_TAKEN})$){_HOST.pattern}$"})
HOSTLIST_SCHEMA = {"type": "string", "pattern": r"^[a-z0-9\[][a-z0-9,\[\]-]*$", "examples": ["gpu[01-04]"]}

HostName = Annotated[str, BeforeValidator(parse_host_name), _HOST_SCHEMA]
HostAddress = Annotated[
    str,
    BeforeValidator(parse_host_address),
    WithJsonSchema({"type": "string", "format": "ipv4", "pattern": f"^{IPV4}$", "examples": ["192.0.2.10"]}),
]
Hostlist = Annotated[tuple[str, ...], BeforeValidator(parse_hosts), WithJsonSchema(HOSTLIST_SCHEMA)]
Addresses = Annotated[
    tuple[str, ...],
    BeforeValidator(parse_addresses),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9\[][0-9.,\[\]-]*$", "examples": ["192.0.2.[11-14]"]}),
]
UserName = Annotated[
    str,
    BeforeValidator(parse_user_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_USER.pattern}$"}),
]
Uid = Annotated[
    int,
    BeforeValidator(parse_uid),
    WithJsonSchema(
        {
            "type": "integer",
            "minimum": FIRST_UID,
            "maximum": LAST_UID,
            "not": {"minimum": SYSTEM_UIDS[0], "maximum": SYSTEM_UIDS[-1]},
        }
    ),
]
PublicKey = Annotated[
    str,
    BeforeValidator(parse_key),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^\s*(?:{'|'.join(map(re.escape, KEY_KINDS))}) [A-Za-z0-9+/]{{16,8192}}={{0,2}}(?: [ -z|~]{{1,100}})?\s*$",
            "examples": ["ssh-ed25519 AAAA… name"],
        }
    ),
]
FabricKind = Annotated[str, BeforeValidator(parse_fabric), WithJsonSchema({"enum": list(FABRICS)})]
Port = Annotated[int, *_number(1, 65535)]
Sockets = Annotated[int, *_number(1, 64)]
Cores = Annotated[int, *_number(1, 1024)]
Threads = Annotated[int, *_number(1, 8)]
GpuCount = Annotated[int, *_number(1, 64)]
PortCount = Annotated[int, *_number(1, 64)]
LoginCount = Annotated[int, *_number(1, 32)]
