"""User data is read by whatever runs on the machine, and by who may describe instances: no secret stands in it."""

import base64
import binascii
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator

from gpucluster.engine.offline.model import SECRET, Resource, Value
from gpucluster.engine.policy import Level, Open, Rule, Said, Stack, Violation, untold

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCE = "aws:ec2/instance:Instance"
NAMES = ("userData", "userDataBase64")
DEPTH = 3  # base64 of gzip of a file in base64
MOST_BYTES = 1 << 20  # what a packed text may become; user data is 16 KB

# what a secret looks like -> its words; the secret itself is never shown
SHAPES = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"), "a private key"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "an AWS access key"),
    (re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36,}\b|\bgithub_pat_\w{22,}"), "a GitHub token"),
    (re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}"), "a Slack token"),
    (re.compile(r"\bhf_[A-Za-z0-9]{30,}\b"), "a Hugging Face token"),
    (re.compile(r"\bey[JK][\w-]{10,}\.ey[\w-]{10,}\.[\w-]{10,}"), "a web token"),
    (re.compile(r"://[^\s/:@]+:[^\s/:@]{3,}@"), "a password in an address"),
    (
        re.compile(r"(?i)(?:password|passwd|secret_?key|secret_access_key|api_?key|auth_?token)[\"']?\s*[:=]\s*[\"']?[^\s\"'{}$<]{6,}"),
        "a password beside its name",
    ),
)  # fmt: skip
_TOKEN = re.compile(r"[A-Za-z0-9+/_=-]{32,}")
_HEX = re.compile(r"[0-9a-fA-F]+")
# Bits a character. Random base64 of 32 characters has 4.4 or more, of 64 hex digits 3.6; words, paths and names less.
BASE64_BITS, HEX_BITS, HEX_LENGTH = 4.4, 3.5, 64


def secrets(stack: Stack) -> Iterator[Said]:
    """Decoded as cloud-init would, and what is packed inside it, too."""
    for resource in stack.of_type(TEMPLATE, INSTANCE):
        for name in NAMES:
            yield from _of(resource, name, resource.properties.get(name))


def _of(resource: Resource, name: str, value: Value) -> Iterator[Said]:
    expected = "no secret: a machine fetches them with its role"
    if value is None:
        return
    found = "a secret of the program" if value == SECRET else None
    if found is None and untold(value):
        yield Open(resource=resource, property=name, expected=expected)
        return
    found = found or _secret(str(value))
    if found is not None:
        step = "put it into a secret that the machine's role may read, as the munge key is"
        yield Violation(resource=resource, property=name, found=found, expected=expected, next_step=step)


def _secret(text: str, depth: int = DEPTH) -> str | None:
    """What was found, in words that do not show it."""
    for shape, words in SHAPES:
        if shape.search(text):
            return words
    for token in _TOKEN.findall(text):
        inner = _unpacked(token) if depth else None
        if inner is not None:
            found = _secret(inner, depth - 1)
            if found is not None:
                return found
        elif _is_random(token):
            return f"{len(token)} characters that look drawn at random"
    return None


def _unpacked(token: str) -> str | None:
    """The text that the token is base64 of; None when it is none."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    if raw.startswith(b"\x1f\x8b"):
        try:
            raw = zlib.decompressobj(31).decompress(raw, MOST_BYTES)
        except zlib.error:
            return None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if all(char.isprintable() or char.isspace() for char in text) else None


def _is_random(token: str) -> bool:
    if _HEX.fullmatch(token):
        return len(token) >= HEX_LENGTH and _bits(token) >= HEX_BITS
    mixed = (
        any(c.isdigit() for c in token)
        and any(c.isupper() for c in token)
        and any(c.islower() for c in token)
    )
    return mixed and _bits(token) >= BASE64_BITS


def _bits(token: str) -> float:
    """Shannon's entropy of one character."""
    return -sum(n / len(token) * math.log2(n / len(token)) for n in Counter(token).values())


RULES = (
    Rule(name="secret-in-user-data", level=Level.MANDATORY, about="User data holds no secret.", judge=secrets),
)  # fmt: skip
