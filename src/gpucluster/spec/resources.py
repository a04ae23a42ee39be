"""Kubernetes' names, resources and quantities as leaves of a spec."""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.plan.kubernetes import CPU, IN_MIB
from gpucluster.spec.fields import MAX_NAME, parse_name, parse_text, refuse
from gpucluster.spec.problem import quoted

MAX_TEXT = 4096  # of an argument or a variable; more belongs in a file

_TAKEN = frozenset({"default", "gpu-operator", "jobset-system", "karpenter", "kueue-system"})
_SUFFIXES = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_RESOURCE = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?/)?[a-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)
_PROFILE = re.compile(r"[1-7]g\.[1-9][0-9]{0,2}gb")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HOST = (
    r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?){0,10}(?::[0-9]{1,5})?"
)
_STEP = r"[a-z0-9]+(?:(?:[._]|__|-{1,8})[a-z0-9]+){0,16}"
_IMAGE = re.compile(
    rf"(?:{_HOST}/)?{_STEP}(?:/{_STEP}){{0,10}}(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)


def parse_team(value: object) -> str:
    """A team's name is its namespace's."""
    name = parse_name(value)
    if name in _TAKEN or name.startswith("kube-"):
        raise refuse("reserved-name", f"the namespace '{name}' is the system's own; take another name")
    return name


def parse_resource(value: object) -> str:
    text = parse_text(value)
    if not _RESOURCE.fullmatch(text):
        raise refuse(
            "bad-resource", f"{quoted(text)} is not a resource such as cpu, memory or nvidia.com/gpu"
        )
    return text


def parse_quantity(value: object) -> int:
    """Thousandths, as Kubernetes counts: `4` and `4000m` are the same."""
    text = str(value) if type(value) is int else parse_text(value)
    found = _QUANTITY.fullmatch(text)
    if not found:
        raise refuse("bad-quantity", f"{quoted(text)} is not a quantity such as 4, 500m or 16Gi")
    number, suffix = Decimal(found[1]), found[2] or ""
    thousandths = number if suffix == "m" else number * 1000 * _SUFFIXES[suffix]
    if thousandths != int(thousandths):
        raise refuse("bad-quantity", f"{quoted(text)} is finer than a thousandth")
    return int(thousandths)


def in_unit(resource: str, thousandths: int) -> int | None:
    """The amount in the plan's unit of that resource; None if it is not a whole number of it."""
    unit = 1 if resource == CPU else 1000 * 2**20 if resource in IN_MIB else 1000
    return thousandths // unit if thousandths % unit == 0 else None


def parse_profile(value: object) -> str:
    text = parse_text(value)
    if not _PROFILE.fullmatch(text):
        raise refuse("bad-profile", f"{quoted(text)} is not a MIG profile such as 1g.10gb")
    return text


def parse_image(value: object) -> str:
    text = parse_text(value)
    if len(text) > 512 or not _IMAGE.fullmatch(text):
        raise refuse(
            "bad-image", f"{quoted(text)} is not an image such as registry.example.org/team/name:1.4"
        )
    return text


def parse_variable(value: object) -> str:
    text = parse_text(value)
    if not _VARIABLE.fullmatch(text):
        raise refuse("bad-variable", f"{quoted(text)} is not a variable's name: use A-Z, a-z, 0-9 and '_'")
    return text


def parse_line(value: object) -> str:
    """Text for an argument or a variable: anything that is printed, in any script."""
    text = parse_text(value)
    if len(text) > MAX_TEXT or not all(c.isprintable() or c in "\t\n" for c in text):
        raise refuse("bad-text", f"{quoted(text)} has control characters, or is longer than {MAX_TEXT}")
    return text


_NAME = {"type": "string", "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$", "maxLength": MAX_NAME}

TeamName = Annotated[str, BeforeValidator(parse_team), WithJsonSchema(_NAME)]
Resource = Annotated[
    str, BeforeValidator(parse_resource), WithJsonSchema({"type": "string", "examples": ["nvidia.com/gpu"]})
]
Quantity = Annotated[
    int,
    BeforeValidator(parse_quantity),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": f"^{_QUANTITY.pattern}$", "examples": ["500m", "16Gi"]},
            ]
        }
    ),
]
Profile = Annotated[
    str,
    BeforeValidator(parse_profile),
    WithJsonSchema({"type": "string", "pattern": f"^{_PROFILE.pattern}$", "examples": ["1g.10gb"]}),
]
Image = Annotated[
    str,
    BeforeValidator(parse_image),
    WithJsonSchema({"type": "string", "maxLength": 512, "examples": ["registry.example.org/chat:1.4"]}),
]
Variable = Annotated[
    str,
    BeforeValidator(parse_variable),
    WithJsonSchema({"type": "string", "pattern": f"^{_VARIABLE.pattern}$"}),
]
Line = Annotated[str, BeforeValidator(parse_line), WithJsonSchema({"type": "string", "maxLength": MAX_TEXT})]
