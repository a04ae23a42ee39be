"""User data contains no secret: every process on the machine and every user with DescribeInstances can read it."""

import base64
import binascii
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator

from gpucluster.engine.offline.model import SECRET, Resource, Value
from gpucluster.engine.policy import (
    EnforcementLevel,
    Rule,
    RuleResult,
    Stack,
    Undecided,
    Violation,
    is_unreadable,
)

LAUNCHES = (
    "aws:ec2/launchTemplate:LaunchTemplate",
    "aws:ec2/instance:Instance",
    "aws:ec2/spotInstanceRequest:SpotInstanceRequest",
    "aws:ec2/launchConfiguration:LaunchConfiguration",
)
NAMES = ("userData", "userDataBase64")
DEPTH = 3  # base64 of gzip of a file in base64
MOST_BYTES = 1 << 20  # limit of decoded text; user data is at most 16 KB

# A literal value, not a variable, ARN, path or command. Quotes may be escaped, because JSON can be inside JSON.
_NAMED = r"""
    (?<![a-z:])
    (?: (?:db_?)? pass (?:word|wd|phrase)? | secret (?:_?(?:access_?)?key)? | api_?key | private_?key | munge_?key
      | (?:auth|access|bearer)?_?token )
    \\* ["']? \s* [:=] \s* \\* ["']? (?! arn: | / ) [^\s"'{}$<`\\]{6,}
"""
# pattern of a secret -> description; the secret itself is never shown
SHAPES = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"), "a private key"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "an AWS access key"),
    (re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36,}\b|\bgithub_pat_\w{22,}"), "a GitHub token"),
    (re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}"), "a Slack token"),
    (re.compile(r"\bhf_[A-Za-z0-9]{30,}\b"), "a Hugging Face token"),
    (re.compile(r"\bey[JK][\w-]{10,}\.ey[\w-]{10,}\.[\w-]{10,}"), "a web token"),
    (re.compile(r"://[^\s/:@]+:[^\s/:@]{3,}@"), "a password in an address"),
    (re.compile(_NAMED, re.VERBOSE | re.IGNORECASE), "a password beside its name"),
    (re.compile(r"(?m)^\s*-?\s*(?:root|ubuntu|admin|ec2-user):[^\s:*!/$]{6,}\s*$"), "a password of chpasswd"),
)  # fmt: skip
_LEAST = 32  # characters of a word that may be random
_TOKEN = re.compile(rf"[A-Za-z0-9+/_=-]{{{_LEAST},}}")
_URLSAFE = str.maketrans("-_", "+/")
_SHORT = re.compile(r"\b(?:[A-Za-z0-9+/]{4}){4,7}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?(?![\w+/=])")
_HEX = re.compile(r"[0-9a-fA-F]+")
# Bits per character. Random base64 of 32 characters has 4.4 or more, 64 hex digits 3.6; words, paths and names have less.
BASE64_BITS, HEX_BITS, HEX_LENGTH = 4.4, 3.5, 64


def secrets(stack: Stack) -> Iterator[RuleResult]:
    """Yield the text, decoded as cloud-init does, and all packed texts in it."""
    for resource in stack.of_type(*LAUNCHES):
        for name in NAMES:
            yield from _of(resource, name, resource.properties.get(name))


def _of(resource: Resource, name: str, value: Value) -> Iterator[RuleResult]:
    expected = "no secret: a machine fetches them with its role"
    if value is None:
        return
    found = "a secret of the program" if value == SECRET else None
    if found is None and is_unreadable(value):
        yield Undecided(resource=resource, property=name, expected=expected)
        return
    found = found or _secret(str(value))
    if found is not None:
        step = "put it into a secret that the machine's role may read, as the munge key is"
        yield Violation(resource=resource, property=name, found=found, expected=expected, next_step=step)


def _secret(text: str, depth: int = DEPTH) -> str | None:
    """Return a description of what was found, without the secret."""
    for shape, words in SHAPES:
        if shape.search(text):
            return words
    for token in _tokens(text):
        inner = _unpacked(token) if depth else None
        if inner is not None:
            found = _secret(inner, depth - 1)
            if found is not None:
                return found
        elif len(token) >= _LEAST and _is_random(token):
            return f"{len(token)} characters that look drawn at random"
    return None


def _tokens(text: str) -> Iterator[str]:
    """Return words that may be encoded: long words, and shorter ones in whole groups of base64."""
    yield from _TOKEN.findall(text)
    yield from (token for token in _SHORT.findall(text) if len(token) < _LEAST)


def _unpacked(token: str) -> str | None:
    """Return the decoded base64 or hex text; None if the word is not encoded."""
    try:
        if _HEX.fullmatch(token) and len(token) % 2 == 0:
            raw = bytes.fromhex(token)
        else:
            plain = token.translate(_URLSAFE).rstrip("=")
            raw = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
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
    """Return Shannon's entropy per character."""
    return -sum(n / len(token) * math.log2(n / len(token)) for n in Counter(token).values())


RULES = (
    Rule(name="secret-in-user-data", level=EnforcementLevel.MANDATORY, about="User data contains no secret.", check=secrets, texts=True),
)  # fmt: skip
