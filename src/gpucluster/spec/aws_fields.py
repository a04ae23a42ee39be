"""Field types of the AWS part: ids, ARNs, tags, address ranges, S3 prefixes, mail addresses."""

import ipaddress
from collections.abc import Callable
from typing import Annotated, cast

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.plan.model.values import Follow
from gpucluster.spec.fields import NETWORK, matching, parse_text, refuse
from gpucluster.text import Form, quoted

OSES = ("ubuntu-24.04",)  # the base image of `gpucluster image build`
NATS = ("one", "per-zone", "none")
PLACEMENTS = ("none", "cluster")
THROUGHPUTS = (
    125,
    250,
    500,
    1000,
)  # throughput of persistent SSD file systems of FSx, in MB/s for each TiB (T45)
ENDPOINTS = (
    "ec2", "ec2messages", "elasticfilesystem", "fsx", "logs", "monitoring", "secretsmanager", "sqs", "ssm",
    "ssmmessages", "sts",
)  # fmt: skip
MOST_SUBSCRIBERS = 10  # the most mail addresses of one threshold in AWS Budgets

_HEX = "[0-9a-f]{8}(?:[0-9a-f]{9})?"
_TAG_KEY = Form(r"[A-Za-z0-9 _.:/=+@-]{1,128}")
_TAG_VALUE = Form(r"[A-Za-z0-9 _.:/=+@-]{0,256}")
_ACCOUNT = "(?:aws|[0-9]{12})"
_POLICY = Form(rf"arn:aws(?:-[a-z]+)*:iam::{_ACCOUNT}:policy/[A-Za-z0-9_+=,.@/-]{{1,512}}")
_PRINCIPAL = Form(r"arn:aws(?:-[a-z]+)*:iam::[0-9]{12}:(?:role|user)/[A-Za-z0-9_+=,.@/-]{1,512}")
_SECRET = Form(
    r"arn:aws(?:-[a-z]+)*:secretsmanager:[a-z0-9-]{1,32}:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]{1,512}"
)
_KEY_ID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|mrk-[0-9a-f]{32}"
_ALIAS = "alias/[A-Za-z0-9/_-]{1,250}"
KMS_ARN = Form(rf"arn:aws(?:-[a-z]+)*:kms:([a-z0-9-]{{1,32}}):[0-9]{{12}}:(?:key/(?:{_KEY_ID})|({_ALIAS}))")
_KMS_ALIAS = Form(_ALIAS)
_S3 = Form(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[A-Za-z0-9._/-]{0,512})?")
_S3_OBJECT = Form(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[A-Za-z0-9._-]{1,128}){1,8}")
_SHA256 = Form(r"[0-9a-f]{64}")
_MAIL = Form(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")
_LDAPS = Form(r"ldaps://[A-Za-z0-9.-]{1,253}(?::[0-9]{1,5})?")
_BASE = Form(r"[A-Za-z]{1,16}=[A-Za-z0-9 ._-]{1,64}(?:,[A-Za-z]{1,16}=[A-Za-z0-9 ._-]{1,64}){0,15}")
_THROUGHPUT = Form(r"([0-9]{1,5})MBps/TiB")
_FOLDER = Form(r"/|(?:/[A-Za-z0-9._-]{1,64}){1,16}")
_WARNING = Form(r"[a-z]+(?:-[a-z]+)*")
_OURS = ("aws:", "gpucluster:")


def word_of(words: tuple[str, ...], problem: str, what: str) -> Callable[[object], str]:
    """Return a parser of a fixed set of words."""

    def parse(value: object) -> str:
        text = parse_text(value)
        if text not in words:
            raise refuse(problem, f"{quoted(text)} is not {what}; expected {', '.join(words)}")
        return text

    return parse


def an_id(prefix: str, what: str) -> Callable[[object], str]:
    """Return a parser of EC2 ids and ids of the same form."""
    form = f"the id of {what}: {prefix}- and 17 digits of 0-9 and a-f, such as {prefix}-0123456789abcdef0"
    pattern = Form(f"{prefix}-{_HEX}")
    return matching(pattern, "bad-id", form)


def parse_tag_key(value: object) -> str:
    text = parse_text(value)
    if not _TAG_KEY.fullmatch(text):
        message = (
            f"{quoted(text)} is not the key of a tag: at most 128 of letters, digits, blanks and '_.:/=+-@'"
        )
        raise refuse("bad-tag", message)
    if text.lower().startswith(_OURS) or text == "Name":
        owner = "AWS" if text.lower().startswith("aws:") else "gpucluster"
        raise refuse("reserved-tag", f"{quoted(text)} is reserved by {owner}; choose another key")
    return text


def parse_tag_value(value: object) -> str:
    text = parse_text(value)
    if not _TAG_VALUE.fullmatch(text):
        message = (
            f"{quoted(text)} is not the value of a tag: at most 256 of letters, digits, blanks and '_.:/=+-@'"
        )
        raise refuse("bad-tag", message)
    return text


def parse_kms_key(value: object) -> str:
    """Parse an alias or an ARN of a customer-managed key."""
    text = parse_text(value)
    arn = KMS_ARN.fullmatch(text)
    if arn is None and not _KMS_ALIAS.fullmatch(text):
        message = f"{quoted(text)} is not a key of KMS: an alias such as alias/research, or the ARN of a key or an alias"
        raise refuse("bad-key", message)
    if ((arn[2] or "") if arn else text).startswith("alias/aws/"):
        message = f"{quoted(text)} is a key that AWS manages: its policy cannot be changed; remove the field to use it"
        raise refuse("key-of-aws", message)
    return text


def parse_range(value: object) -> str:
    """Parse any IPv4 network."""
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
    """Parse `new`, or a list of such words: the changes that a link transfers. The result is sorted."""
    words = cast("list[object]", value) if isinstance(value, list) else [value]
    if not words:
        raise refuse("empty-list", "the list is empty; it needs at least one item")
    parse = word_of(tuple(Follow), "bad-follow", "a change that a link follows")
    found = {parse(word) for word in words}
    return tuple(word for word in Follow if word.value in found)


def whole(*patterns: str) -> str:
    """Return a pattern of a JSON Schema: the whole text has one of the forms."""
    return f"^(?:{'|'.join(patterns)})$"


def _text(
    parse: Callable[[object], str], pattern: str, *examples: str
) -> tuple[BeforeValidator, WithJsonSchema]:
    schema = {"type": "string", "pattern": whole(pattern), "examples": list(examples)}
    return BeforeValidator(parse), WithJsonSchema(schema)


def _form(form: Form, problem: str, what: str, example: str) -> tuple[BeforeValidator, WithJsonSchema]:
    return _text(matching(form, problem, f"{what}, such as {example}"), form.pattern, example)


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
NatKind = Annotated[str, *_chosen(NATS, "bad-nat", "a way to the internet")]
PlacementField = Annotated[str, *_chosen(PLACEMENTS, "bad-placement", "a placement")]
Endpoint = Annotated[str, *_chosen(ENDPOINTS, "unknown-endpoint", _ENDPOINT_WHAT)]
AmiId = Annotated[str, *_id("ami", "an image")]
VpcId = Annotated[str, *_id("vpc", "a VPC")]
SubnetId = Annotated[str, *_id("subnet", "a subnet")]
EfsId = Annotated[str, *_id("fs", "an EFS")]
FsxId = Annotated[str, *_id("fs", "an FSx")]
TagKey = Annotated[
    str,
    *_text(
        parse_tag_key,
        rf"(?![Aa][Ww][Ss]:|[Gg][Pp][Uu][Cc][Ll][Uu][Ss][Tt][Ee][Rr]:|Name$){_TAG_KEY.pattern}",
        "team",
    ),
]
TagValue = Annotated[str, *_text(parse_tag_value, _TAG_VALUE.pattern, "research")]
Range = Annotated[str, *_text(parse_range, NETWORK, "198.51.100.0/24")]
PolicyArn = Annotated[
    str, *_form(_POLICY, "bad-arn", "the ARN of a policy", "arn:aws:iam::123456789012:policy/bound")
]
PrincipalArn = Annotated[
    str,
    *_form(
        _PRINCIPAL,
        "bad-arn",
        "the ARN of an IAM role or user",
        "arn:aws:iam::123456789012:role/platform",
    ),
]
KmsKey = Annotated[
    str,
    *_text(
        parse_kms_key,
        f"{KMS_ARN.pattern}|{_KMS_ALIAS.pattern}",
        "alias/research",
        "arn:aws:kms:us-east-1:123456789012:key/0123abcd-0123-0123-0123-0123456789ab",
    ),
]
SecretArn = Annotated[
    str,
    *_form(
        _SECRET,
        "bad-arn",
        "the ARN of a secret",
        "arn:aws:secretsmanager:us-east-1:123456789012:secret:ldap-AbCdEf",
    ),
]
S3Url = Annotated[
    str,
    *_text(
        matching(_S3, "bad-s3", "a place in S3, such as s3://example-data/sets"),
        _S3.pattern,
        "s3://example-data",
    ),
]
S3Object = Annotated[str, *_form(_S3_OBJECT, "bad-s3", "an object in S3", "s3://example-site/boot.sh")]
Sha256 = Annotated[
    str,
    *_text(
        matching(
            _SHA256, "bad-sha256", "a SHA-256, 64 characters 0-9 and a-f, as `sha256sum boot.sh` prints it"
        ),
        _SHA256.pattern,
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ),
]
Mail = Annotated[str, *_form(_MAIL, "bad-mail", "an address of mail", "hpc@example.org")]
LdapUri = Annotated[str, *_form(_LDAPS, "bad-uri", "an LDAP server over TLS", "ldaps://ldap.example.org")]
LdapBase = Annotated[str, *_form(_BASE, "bad-base", "a search base", "dc=example,dc=org")]
Folder = Annotated[
    str,
    *_text(
        matching(_FOLDER, "bad-path", "a folder of the file system, such as / or /sets"), _FOLDER.pattern, "/"
    ),
]
WarningId = Annotated[
    str,
    *_text(
        matching(_WARNING, "bad-word", "the id of a warning, the word in brackets"),
        _WARNING.pattern,
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
