"""Check that Slurm's files, and the applied bundle, are those of the plan."""

import re
from dataclasses import dataclass

from gpucluster.checks import remedies
from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.plan import names
from gpucluster.text import short

WRITTEN_S = 120  # for the agent to fetch the bundle and write its files


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Path -> sha256 of the expected content. `remedy`: of files that neither the agent nor slurmd brings."""

    sha256: dict[str, str]
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The digest of the plan's bundle, and the link to the applied bundle. `remedy`: instead of the check's."""

    link: str
    digest: str
    remedy: str = ""


def query_applied(want: Applied) -> tuple[Query, ...]:
    return (Query(argv=("readlink", "--no-newline", "--", want.link)),)


def parse_applied(got: tuple[QueryOutput, ...]) -> str:
    """The digest in `bundles/DIGEST`."""
    found = got[0].text().rpartition("/")[2]
    if not re.fullmatch(r"[0-9a-f]{64}", found):
        raise ParseError(f"the link leads to {short(found, 80)}")
    return found


def evaluate_applied(found: str, want: Applied) -> CheckResult:
    expected = f"bundle {want.digest[:12]}, the plan's"
    if found == want.digest:
        return passed(expected)
    return failed(f"bundle {found[:12]}", expected, remedy=want.remedy)


def query_files(want: Files) -> tuple[Query, ...]:
    return (Query(argv=("sha256sum", "--", *sorted(want.sha256))),)


def parse_files(got: tuple[QueryOutput, ...]) -> dict[str, str]:
    """Path -> sha256. With exit code 1 a file is missing, and the others are printed."""
    answer = got[0]
    if answer.code != 1 or "sha256sum: " not in answer.stderr:  # sudo and runuser also end with 1
        answer.text()
    found: dict[str, str] = {}
    for line in answer.stdout.splitlines():
        match = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if match is None:
            raise ParseError(f"sha256sum printed {short(line, 80)}")
        found[match[2]] = match[1]
    return found


def evaluate_files(found: dict[str, str], want: Files) -> CheckResult:
    wrong = [path for path, wanted in sorted(want.sha256.items()) if found.get(path) != wanted]
    expected = f"{len(want.sha256)} files as rendered from the plan"
    if not wrong:
        return passed(expected)
    words = [f"{path} {'is another' if path in found else 'cannot be read'}" for path in wrong]
    return failed(listed(words), expected, (), want.remedy or _remedy(wrong, want))


def _remedy(wrong: list[str], want: Files) -> str:
    """On the head the agent writes its files again. A node gets them from slurmctld when slurmd starts; jobs go on."""
    if not all(path.startswith(f"{names.SLURM_ETC}/") for path in wrong):
        return f"on {{machine}}: {remedies.restart('slurmd')}"
    lines = "".join(rf"{want.sha256[path]}  {path}\n" for path in wrong)
    until = f"until printf '{lines}' | sha256sum --check --status; do sleep 1; done"
    return f'on {{machine}}: {remedies.restart("gpucluster-agent")}; timeout {WRITTEN_S} sh -c "{until}"; scontrol reconfigure'
