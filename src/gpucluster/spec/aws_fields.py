"""The leaves of what stands on AWS: ids, ARNs, tags, address ranges of the world, links to S3, mail addresses."""

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, cast

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.plan.model import Follow
from gpucluster.spec.fields import parse_text, refuse
from gpucluster.spec.problem import quoted

OSES = ("ubuntu-24.04",)  # what `gpucluster image build` builds on
NATS = ("one", "per-zone", "none")
PLACEMENTS = ("none", "cluster")
THROUGHPUTS = (125, 250, 500, 1000)  # MB/s a TiB that FSx sells of a persistent SSD file system (T45)
ENDPOINTS = (
    "ec2", "ec2messages", "elasticfilesystem", "fsx", "logs", "monitoring", "secretsmanager", "sqs", "ssm",
    "ssmmessages", "sts",
)  # fmt: skip
MOST_SUBSCRIBERS = 10  # addresses of mail that AWS Budgets tells of one threshold

_HEX = "[0-9a-f]{8}(?:[0-9a-f]{9})?"
_TAG_KEY = re.compile(r"[A-Za-z0-9 _.:/=+@-]{1,128}")
_TAG_VALUE = re.compile(r"[A-Za-z0-9 _.:/=+@-]{0,256}")
_ACCOUNT = "(?:aws|[0-9]{12})"
_POLICY = re.compile(rf"arn:aws(?:-[a-z]+)*:iam::{_ACCOUNT}:policy/[A-Za-z0-9_+=,.@/-]{{1,512}}")
_SECRET = re.compile(
    r"arn:aws(?:-[a-z]+)*:secretsmanager:[a-z0-9-]{1,32}:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]{1,512}"
)
_S3 = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[A-Za-z0-9._/-]{0,512})?")
_MAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")
_LDAPS = re.compile(r"ldaps://[A-Za-z0-9.-]{1,253}(?::[0-9]{1,5})?")
_BASE = re.compile(r"[A-Za-z]{1,16}=[A-Za-z0-9 ._-]{1,64}(?:,[A-Za-z]{1,16}=[A-Za-z0-9 ._-]{1,64}){0,15}")
_THROUGHPUT = re.compile(r"([0-9]{1,5})MBps/TiB")
_FOLDER = re.compile(r"/|(?:/[A-Za-z0-9._-]{1,64}){1,16}")
_WARNING = re.compile(r"[a-z]+(?:-[a-z]+)*")
_OURS = ("aws:", "gpucluster:")


def matching(pattern: re.Pattern[str], problem: str, what: str) -> Callable[[object], str]:
    """A parser of texts of one form; `what` names the form with an example."""

    def parse(value: object) -> str:
        text = parse_text(value)
        if not pattern.fullmatch(text):
            raise refuse(problem, f"{quoted(text)} is not {what}")
        return text

    return parse


def word_of(words: tuple[str, ...], problem: str, what: str) -> Callable[[object], str]:
    """A parser of one of a few words."""

    def parse(value: object) -> str:
        text = parse_text(value)
        if text not in words:
            raise refuse(problem, f"{quoted(text)} is not {what}; expected {', '.join(words)}")
        return text

    return parse


def an_id(prefix: str, what: str) -> Callable[[object], str]:
    """A parser of ids as EC2 and its neighbours give them."""
    form = f"the id of {what}: {prefix}- and 17 digits of 0-9 and a-f, such as {prefix}-0123456789abcdef0"
    pattern = re.compile(f"{prefix}-{_HEX}")
    return matching(pattern, "bad-id", form)


def parse_tag_key(value: object) -> str:
    text = parse_text(value)
    if not _TAG_KEY.fullmatch(text):
        says = (
            f"{quoted(text)} is not the key of a tag: at most 128 of letters, digits, blanks and '_.:/=+-@'"
        )
        raise refuse("bad-tag", says)
    if text.lower().startswith(_OURS) or text == "Name":
        whose = "AWS" if text.lower().startswith("aws:") else "gpucluster"
        raise refuse("reserved-tag", f"{quoted(text)} is a tag of {whose}'s own; take another key")
    return text


def parse_tag_value(value: object) -> str:
    text = parse_text(value)
    if not _TAG_VALUE.fullmatch(text):
        says = (
            f"{quoted(text)} is not the value of a tag: at most 256 of letters, digits, blanks and '_.:/=+-@'"
        )
        raise refuse("bad-tag", says)
    return text


def parse_range(value: object) -> str:
    """Addresses of the world: any IPv4 network."""
    text = parse_text(value)
    try:
        network = ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        raise refuse("bad-cidr", f"{quoted(text)} is not an IPv4 network such as 198.51.100.0/24") from None
    if "/" not in text or str(network) != text:
        raise refuse("bad-cidr", f"{quoted(text)} is not written as a network; did you mean '{network}'?")
    return text


def parse_throughput(value: object) -> int:
    forms = ", ".join(f"{one}MBps/TiB" for one in THROUGHPUTS)
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise refuse("no-unit", f"{value} has no unit; write {forms}")
    text = parse_text(value)
    match = _THROUGHPUT.fullmatch(text)
    if match is None or int(match[1]) not in THROUGHPUTS:
        raise refuse("bad-throughput", f"{quoted(text)} is not a throughput that FSx sells: {forms}")
    return int(match[1])


def parse_follows(value: object) -> tuple[Follow, ...]:
    """`new`, or a list of such words: which changes cross a link, in one order."""
    words = cast("list[object]", value) if isinstance(value, list) else [value]
    if not words:
        raise refuse("empty-list", "the list is empty; it needs at least one item")
    parse = word_of(tuple(Follow), "bad-follow", "a change that a link follows")
    found = {parse(word) for word in words}
    return tuple(word for word in Follow if word.value in found)


def _text(parse: Callable[[object], str], *examples: str) -> tuple[BeforeValidator, WithJsonSchema]:
    return BeforeValidator(parse), WithJsonSchema({"type": "string", "examples": list(examples)})


def _id(prefix: str, what: str) -> tuple[BeforeValidator, WithJsonSchema]:
    return BeforeValidator(an_id(prefix, what)), WithJsonSchema(
        {"type": "string", "pattern": f"^{prefix}-{_HEX}$"}
    )


def _chosen(words: tuple[str, ...], problem: str, what: str) -> tuple[BeforeValidator, WithJsonSchema]:
    schema = WithJsonSchema({"enum": list(words)})
    return BeforeValidator(word_of(words, problem, what)), schema


_ENDPOINT_WHAT = "a service that has an endpoint here"
_FOLLOWS = {"enum": [follow.value for follow in Follow]}

Os = Annotated[str, *_chosen(OSES, "unknown-os", "a system that images are built on")]
NatWish = Annotated[str, *_chosen(NATS, "bad-nat", "a way to the internet")]
PlacementWish = Annotated[str, *_chosen(PLACEMENTS, "bad-placement", "a placement")]
Endpoint = Annotated[str, *_chosen(ENDPOINTS, "unknown-endpoint", _ENDPOINT_WHAT)]
AmiId = Annotated[str, *_id("ami", "an image")]
VpcId = Annotated[str, *_id("vpc", "a VPC")]
SubnetId = Annotated[str, *_id("subnet", "a subnet")]
EfsId = Annotated[str, *_id("fs", "an EFS")]
FsxId = Annotated[str, *_id("fs", "an FSx")]
TagKey = Annotated[str, *_text(parse_tag_key, "team")]
TagValue = Annotated[str, *_text(parse_tag_value, "research")]
Range = Annotated[str, *_text(parse_range, "198.51.100.0/24")]
PolicyArn = Annotated[
    str,
    *_text(
        matching(_POLICY, "bad-arn", "the ARN of a policy, such as arn:aws:iam::123456789012:policy/bound"),
        "arn:aws:iam::123456789012:policy/bound",
    ),
]
SecretArn = Annotated[
    str,
    *_text(
        matching(
            _SECRET,
            "bad-arn",
            "the ARN of a secret, such as arn:aws:secretsmanager:us-east-1:123456789012:secret:ldap-AbCdEf",
        ),
        "arn:aws:secretsmanager:us-east-1:123456789012:secret:ldap-AbCdEf",
    ),
]
S3Url = Annotated[
    str, *_text(matching(_S3, "bad-s3", "a place in S3, such as s3://example-data/sets"), "s3://example-data")
]
Mail = Annotated[
    str,
    *_text(
        matching(_MAIL, "bad-mail", "an address of mail, such as hpc@example.org"),
        "hpc@example.org",
    ),
]
LdapUri = Annotated[
    str,
    *_text(
        matching(_LDAPS, "bad-uri", "an LDAP server over TLS, such as ldaps://ldap.example.org"),
        "ldaps://ldap.example.org",
    ),
]
LdapBase = Annotated[
    str,
    *_text(
        matching(_BASE, "bad-base", "a search base, such as dc=example,dc=org"),
        "dc=example,dc=org",
    ),
]
Folder = Annotated[
    str, *_text(matching(_FOLDER, "bad-path", "a folder of the file system, such as / or /sets"), "/")
]
WarningId = Annotated[
    str,
    *_text(
        matching(_WARNING, "bad-word", "the id of a warning, as it stands in brackets"),
        "machine-not-sold",
    ),
]
Throughput = Annotated[
    int,
    BeforeValidator(parse_throughput),
    WithJsonSchema({"enum": [f"{one}MBps/TiB" for one in THROUGHPUTS]}),
]
Follows = Annotated[
    tuple[Follow, ...],
    BeforeValidator(parse_follows),
    WithJsonSchema({"oneOf": [_FOLLOWS, {"type": "array", "items": _FOLLOWS, "minItems": 1}]}),
]
