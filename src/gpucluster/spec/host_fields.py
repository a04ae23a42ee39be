"""The leaves of hosts that exist and of the people on them: addresses, hostlists, keys, uids."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.plan.hostlist import HostlistError, HostlistTooLargeError, expand
from gpucluster.spec.fields import MAX_NODES, parse_address, parse_text, refuse
from gpucluster.spec.problem import quoted

FABRICS = ("infiniband", "roce", "ethernet")
FIRST_UID, LAST_UID = 1000, 2_000_000_000
SYSTEM_UIDS = range(
    60_000, 65_536
)  # Debian gives 60000-64999 to packages (slurm is 64030) and 65534 to nobody
KEY_KINDS = (
    "ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
)  # fmt: skip
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_USER = re.compile(r"[a-z][a-z0-9_-]{0,30}")
_KEY = re.compile(
    r"(\S+) ([A-Za-z0-9+/]{16,8192}={0,2})(?: ([ -z|~]{1,100}))?"
)  # no brace: Ansible has templates
_OPENSSH_PRIVATE = "b3BlbnNzaC1rZXktdj"  # "openssh-key-v" in base64: the first line of its body
_ED25519_BYTES = 32
_OTHERS_NAMES = (
    frozenset(  # of /etc/hosts, of Ansible's groups, of slurm.conf's NodeName: each means something there
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
_REACH = (  # what an address is, why ssh cannot go there
    ("is_unspecified", "it is no host's"),
    ("is_loopback", "it is each machine's own"),
    ("is_multicast", "it is a group's"),
    ("is_link_local", "it is not routed, and the metadata service of clouds is there"),
    ("is_reserved", "nobody has it"),
)


def parse_host_name(value: object) -> str:
    """A short host name, as `hostname -s` says it."""
    text = parse_text(value)
    if not _HOST.fullmatch(text) or text.isdecimal():
        raise refuse(
            "bad-host-name",
            f"{quoted(text)} is not a short host name of a-z, 0-9 and '-', at most 63 characters",
        )
    if text in _OTHERS_NAMES:
        raise refuse(
            "reserved-name",
            f"{quoted(text)} is not a host's name: to Ansible, Slurm or /etc/hosts it means another thing",
        )
    return text


def parse_host_address(value: object) -> str:
    """An IPv4 address that ssh can go to."""
    text = parse_address(value)
    address = ipaddress.IPv4Address(text)
    why = next((why for kind, why in _REACH if getattr(address, kind)), None)
    if why is None and address in ipaddress.IPv4Network("0.0.0.0/8"):
        why = "it is no host's"
    if why is not None:
        raise refuse("address-out-of-reach", f"ssh cannot reach {quoted(text)}: {why}")
    return text


def parse_hosts(value: object) -> tuple[str, ...]:
    """The names of a hostlist, in order."""
    return _hostlist(value, parse_host_name)


def parse_addresses(value: object) -> tuple[str, ...]:
    """The addresses of a hostlist, in order."""
    return _hostlist(value, parse_host_address)


def parse_user_name(value: object) -> str:
    text = parse_text(value)
    if not _USER.fullmatch(text):
        raise refuse(
            "bad-user-name",
            f"{quoted(text)} is not a user's name: use a-z, 0-9, '_' and '-', beginning with a letter, at most 31 characters",
        )
    return text


def parse_uid(value: object) -> int:
    uid = number(FIRST_UID, LAST_UID)(value)
    if uid in SYSTEM_UIDS:
        raise refuse(
            "out-of-range", f"{uid} is one of the system's own ({SYSTEM_UIDS[0]} to {SYSTEM_UIDS[-1]})"
        )
    return uid


def parse_key(value: object) -> str:
    """A public key of OpenSSH, by form; the key's own kind stands in its first bytes once more."""
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
    """Whether a text has the marks of one, with its headers or without."""
    return "PRIVATE KEY" in text or _OPENSSH_PRIVATE in text


def parse_fabric(value: object) -> str:
    text = parse_text(value)
    if text not in FABRICS:
        raise refuse("bad-fabric", f"{quoted(text)} is not a fabric; expected {', '.join(FABRICS)}")
    return text


def number(least: int, most: int) -> Callable[[object], int]:
    """A parser of whole numbers."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            found = "nothing" if value is None else quoted(value)
            raise refuse("bad-type", f"expected a whole number, found {found}")
        if not least <= value <= most:
            raise refuse("out-of-range", f"{value} is not between {least} and {most}")
        return value

    return parse


def _hostlist(value: object, parse: Callable[[object], str]) -> tuple[str, ...]:
    text = parse_text(value)
    try:
        names = expand(text, most=MAX_NODES)
    except HostlistTooLargeError as error:
        raise refuse("hostlist-too-large", f"{quoted(text)} is too large for a pool: {error}") from None
    except HostlistError as error:
        raise refuse("bad-hostlist", f"{quoted(text)} is not a hostlist: {error}") from None
    return tuple(parse(name) for name in names)


def _is_of(kind: str, body: str) -> bool:
    """Whether the key is whole and of its kind: on the wire it is words, each after its length in four bytes."""
    try:
        raw = base64.b64decode(body, validate=True)
    except (ValueError, binascii.Error):
        return False
    words = list[bytes]()
    while raw:
        length = int.from_bytes(raw[:4])
        if len(raw) < 4 + length:
            return False  # cut off where it was pasted
        words.append(raw[4 : 4 + length])
        raw = raw[4 + length :]
    if kind == "ssh-ed25519":
        return len(words) == 2 and words[0] == kind.encode() and len(words[1]) == _ED25519_BYTES
    return len(words) > 2 and words[0] == kind.encode()


def _number(least: int, most: int) -> tuple[BeforeValidator, WithJsonSchema]:
    return BeforeValidator(number(least, most)), WithJsonSchema(
        {"type": "integer", "minimum": least, "maximum": most}
    )


_HOST_SCHEMA = WithJsonSchema({"type": "string", "pattern": f"^{_HOST.pattern}$"})
_LIST_SCHEMA = WithJsonSchema({"type": "string", "examples": ["gpu[01-04]"]})

HostName = Annotated[str, BeforeValidator(parse_host_name), _HOST_SCHEMA]
HostAddress = Annotated[
    str,
    BeforeValidator(parse_host_address),
    WithJsonSchema({"type": "string", "format": "ipv4", "examples": ["192.0.2.10"]}),
]
Hostlist = Annotated[tuple[str, ...], BeforeValidator(parse_hosts), _LIST_SCHEMA]
Addresses = Annotated[
    tuple[str, ...],
    BeforeValidator(parse_addresses),
    WithJsonSchema({"type": "string", "examples": ["192.0.2.[11-14]"]}),
]
UserName = Annotated[
    str,
    BeforeValidator(parse_user_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_USER.pattern}$"}),
]
Uid = Annotated[
    int,
    BeforeValidator(parse_uid),
    WithJsonSchema({"type": "integer", "minimum": FIRST_UID, "maximum": LAST_UID}),
]
PublicKey = Annotated[
    str,
    BeforeValidator(parse_key),
    WithJsonSchema({"type": "string", "examples": ["ssh-ed25519 AAAA… name"]}),
]
FabricKind = Annotated[str, BeforeValidator(parse_fabric), WithJsonSchema({"enum": list(FABRICS)})]
Port = Annotated[int, *_number(1, 65535)]
Sockets = Annotated[int, *_number(1, 64)]
Cores = Annotated[int, *_number(1, 1024)]
Threads = Annotated[int, *_number(1, 8)]
GpuCount = Annotated[int, *_number(1, 64)]
PortCount = Annotated[int, *_number(1, 64)]
LoginCount = Annotated[int, *_number(1, 32)]
