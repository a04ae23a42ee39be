"""Check munge: on the head alone, and between the head and a machine in both directions."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from gpucluster.checks import json_fields, remedies
from gpucluster.checks.check import (
    TIMED_OUT,
    CheckResult,
    Location,
    ParseError,
    Query,
    QueryOutput,
    failed,
    passed,
)
from gpucluster.plan import names
from gpucluster.text import short

_LIMIT_S = 5.0  # munged answers in milliseconds or not at all
_AGENT = (f"{names.VENV}/bin/python", "-I", "-m", "gpucluster.agent")
_COMPARE, _COMPARE_S = (*_AGENT, "compare-munge-key"), 30.0
RESTORE = " ".join((*_AGENT, "restore-munge-key"))
_MAKE = ("munge", "--no-input")
_READ = ("sh", "-c", 'printf %s "$1" | unmunge --keys=STATUS,UID', "sh", "{fed}")


_LATE = "munged does not answer in time"
_TIMES = ("Expired credential", "Rewound credential")  # unmunge(1): the clocks of both sides differ
_KEY = "Invalid credential"  # it was made with another key


class MungeFault(StrEnum):
    """Why a credential is refused."""

    SILENT = "silent"
    CLOCK = "clock"
    KEY = "key"


# By fault. A machine that has another key reads the right one from the secret: `auth.secret` has compared that with the head's.
_REMEDIES = {
    MungeFault.SILENT: f"on {{machine}}: {remedies.restart('munge')}; {remedies.LOG} munge",
    MungeFault.CLOCK: "on {machine}: chronyc makestep; chronyc -n tracking",
    MungeFault.KEY: "on {machine}: systemctl restart gpucluster-agent munge  # on existing hosts, playbooks/site.yml again installs the key",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Munge:
    """Each side must accept the credential of the other. `alone`: the head must accept its own."""

    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey:
    """The secret of the cloud must have the munge key of the head: a machine that boots reads it there. `arn`: of the secret."""

    arn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKey:
    """Whether the secret has the key of the head, and its version. No key leaves the head."""

    same: bool
    version: str


def query_secret_key(_: SecretKey) -> tuple[Query, ...]:
    return (Query(argv=_COMPARE, limit_s=_COMPARE_S),)


def parse_secret_key(got: tuple[QueryOutput, ...]) -> FoundKey:
    body = json_fields.table(got[0].text())
    return FoundKey(same=json_fields.flag(body, "same"), version=json_fields.text(body, "version"))


def evaluate_secret_key(found: FoundKey, want: SecretKey) -> CheckResult:
    name, version = want.arn.rpartition(":")[2], short(found.version, 40)
    expected = f"{name} has the key of the head"
    if found.same:
        return passed(f"{name} has it, version {version}", expected)
    if not version:
        return failed(f"{name} has no value: no machine that boots gets a key", expected)
    return failed(
        f"{name} has another key, version {version}: a machine that boots cannot talk to the head", expected
    )


def query_munge(want: Munge) -> tuple[Query, ...]:
    make, read = Query(argv=_MAKE, limit_s=_LIMIT_S), Query(argv=_READ, limit_s=_LIMIT_S)
    if want.alone:
        return (make, read)
    return (replace(make, at=Location.HEAD), read, make, replace(read, at=Location.HEAD))


def parse_munge(got: tuple[QueryOutput, ...]) -> tuple[str, ...]:
    """The result of each `unmunge`: `uid N`, or the error of munge."""
    return tuple(_read(made, read) for made, read in zip(got[::2], got[1::2], strict=True))


def evaluate_munge(found: tuple[str, ...], want: Munge) -> CheckResult:
    sides = ("its own",) if want.alone else ("the head's, read here", "this machine's, read on the head")
    expected = "its own credential" if want.alone else "each accepts the other's credential"
    wrong = [f"{side}: {words}" for side, words in zip(sides, found, strict=True) if words != "uid 0"]
    if wrong:
        family = _family(found)
        return failed("; ".join(wrong), f"{expected}, made by uid 0", (), _REMEDIES[family], family=family)
    return passed("its own, uid 0" if want.alone else "both ways, uid 0", f"{expected}, made by uid 0")


def _family(found: Sequence[str]) -> MungeFault:
    """A refusal says more than no answer: the other side cannot read what munged makes."""
    if any(_KEY in words for words in found):
        return MungeFault.KEY
    return MungeFault.CLOCK if any(time in words for words in found for time in _TIMES) else MungeFault.SILENT


def _read(made: QueryOutput, read: QueryOutput) -> str:
    """`uid N`, or the reason for the refusal."""
    if TIMED_OUT in (made.code, read.code):
        return _LATE
    if made.code != 0:
        return f"munge failed: {short(made.stderr, 80) or f'exit {made.code}'}"
    status = re.search(r"^STATUS:\s+(\S.*?) \(([0-9]+)\)$", read.stdout, re.MULTILINE)
    if status is None and read.code != 0:
        return short(read.stderr, 80) or f"unmunge ended with {read.code}"
    uid = re.search(r"^UID:\s+(?:\S+ \()?([0-9]+)\)?$", read.stdout, re.MULTILINE)
    if status is None or (status[2] == "0" and uid is None):
        raise ParseError(f"unmunge printed {short(read.stdout, 80)}")
    return f"uid {uid[1]}" if status[2] == "0" and uid else short(status[1], 80)
