"""Check slurmctld's running configuration: that it is the one of slurm.conf, and that nobody changed it by scontrol.

`scontrol show config` has no text of users. Its HASH_VAL compares slurmctld's slurm.conf with the file on the head; a
change by `scontrol setdebug` does not change it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.checks import setting_values, slurmctld
from gpucluster.checks.check import (
    CheckResult,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
    warned,
)
from gpucluster.text import short

FLAGS, LEVEL = "debugflags", "slurmctlddebug"
_WITH_OTHERS = frozenset({"accountingstoragetres"})  # Slurm adds cpu, mem and others
_LEVELS = frozenset({LEVEL, "slurmctldsyslogdebug", "slurmddebug", "slurmdsyslogdebug"})
_HASH, _VERSION = "hash_val", "slurm_version"
_INDEXED = re.compile(r"\[[0-9]+\]$")  # Prolog[0]
_LINE = re.compile(r"([A-Za-z_]+(?:\[[0-9]+\])?)\s+= ?(.*)")
_RECONFIGURE = "on {machine}: scontrol reconfigure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Key of slurm.conf in small letters -> its value. `hashed`: slurmctld compares its file with the one on the head.

    `release`: that of slurmctld. `least`: its oldest release without published faults of security; None: not known.
    """

    values: dict[str, str]
    release: str
    hashed: bool = True
    least: slurmctld.LeastRelease | None = None


def query_config(_want: Settings) -> tuple[Query, ...]:
    return (Query(argv=("scontrol", "show", "config")),)


def parse_config(got: tuple[QueryOutput, ...]) -> dict[str, str]:
    """Key in small letters -> value, of the part about slurm.conf. A key with several values has them with commas between."""
    found: dict[str, str] = {}
    lines = iter(got[0].text().splitlines())
    if not next(lines, "").startswith("Configuration data as of "):
        raise ParseError(f"scontrol show config printed {short(got[0].stdout, 60)!r}")
    for line in lines:
        pair = _LINE.fullmatch(line)
        if pair is None:
            break  # an empty line: the part about cgroup.conf begins
        key = _INDEXED.sub("", pair[1]).lower()
        found[key] = f"{found[key]},{pair[2]}" if key in found else pair[2].strip()
    for key in (_HASH, _VERSION):
        if key not in found:
            raise ParseError(f"scontrol shows no {key.upper()}")
    return found


def evaluate_config(found: dict[str, str], want: Settings) -> CheckResult:
    """Compare the values of the plan's slurm.conf that slurmctld shows, and its hash of the whole file."""
    wrong = [
        (key, value)
        for key, value in sorted(want.values.items())
        if key in found and not _same(key, found[key], value)
    ]
    expected = f"Slurm {want.release} with the {len(want.values)} values of the plan's slurm.conf"
    words = [f"{key} is {short(found[key], 60)}, not {short(value, 60) or 'unset'}" for key, value in wrong]
    if want.hashed and not found[_HASH].startswith("Match"):
        words.append("slurmctld has read another slurm.conf than the file on the head")
    if not slurmctld.is_of_release(found[_VERSION], want.release):
        words.insert(0, f"slurmctld is {short(found[_VERSION], 30)}, not {want.release}")
        install = slurmctld.INSTALL.format(release=want.release)
        return failed(listed(words, 4), expected, (_VERSION, *(key for key, _ in wrong)), install)
    if want.least is not None and (fault := want.least.fault_of(found[_VERSION])):
        if not words:
            return warned(f"slurmctld {fault}", expected, want.least.remedy)
        words.append(f"slurmctld {fault}")
    if not words:
        return passed(f"{len(want.values.keys() & found.keys())} values as in the plan", expected)
    return failed(listed(words, 4), expected, tuple(key for key, _ in wrong), _remedy(found, wrong))


def _same(key: str, shown: str, wanted: str) -> bool:
    if key in _LEVELS:
        return setting_values.same(setting_values.level(shown), setting_values.level(wanted))
    if key in _WITH_OTHERS:
        return setting_values.has_all(shown, wanted)
    if key == "slurmuser":
        shown = shown.partition("(")[0]  # slurm(64030)
    return setting_values.same(shown, wanted)


def _remedy(found: dict[str, str], wrong: list[tuple[str, str]]) -> str:
    """Set debug level and flags at once. For anything else slurmctld reads its file again, which sets both, too."""
    if not wrong or any(key not in (FLAGS, LEVEL) for key, _ in wrong):
        return _RECONFIGURE
    return "on {machine}: " + "; ".join(word for key, value in wrong for word in _commands(key, found, value))


def _commands(key: str, found: dict[str, str], wanted: str) -> Iterator[str]:
    if key == LEVEL:
        yield f"scontrol setdebug {setting_values.level(wanted)}"
        return
    now, then = setting_values.words(found[FLAGS]), setting_values.words(wanted)
    signs = (*((flag, "-") for flag in sorted(now - then)), *((flag, "+") for flag in sorted(then - now)))
    yield from (f"scontrol setdebugflags {sign}{flag}" for flag, sign in signs)
