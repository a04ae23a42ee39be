"""Are Slurm's files, and the bundle that they come from, those that the plan renders?"""

import re
from dataclasses import dataclass

from gpucluster.checks.model import Answer, Ask, Judgement, ParseError, failed, listed, passed, short


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Path -> sha256 of what must stand there."""

    sha256: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The bundle of the plan, by its digest: what the bucket offers, or Ansible brings."""

    link: str
    digest: str


def ask_applied(want: Applied) -> tuple[Ask, ...]:
    return (Ask(argv=("readlink", "--no-newline", "--", want.link)),)


def parse_applied(got: tuple[Answer, ...]) -> str:
    """The digest in `bundles/DIGEST`."""
    found = got[0].text().rpartition("/")[2]
    if not re.fullmatch(r"[0-9a-f]{64}", found):
        raise ParseError(f"the link leads to {short(found, 80)}")
    return found


def judge_applied(found: str, want: Applied) -> Judgement:
    expected = f"bundle {want.digest[:12]}, the plan's"
    return passed(expected) if found == want.digest else failed(f"bundle {found[:12]}", expected)


def ask_files(want: Files) -> tuple[Ask, ...]:
    return (Ask(argv=("sha256sum", "--", *sorted(want.sha256))),)


def parse_files(got: tuple[Answer, ...]) -> dict[str, str]:
    """Path -> sum. Exit 1 means that a file is missing; the others are told all the same."""
    answer = got[0]
    if answer.code != 1 or "sha256sum: " not in answer.stderr:  # sudo's and runuser's own no is 1, too
        answer.text()
    found: dict[str, str] = {}
    for line in answer.stdout.splitlines():
        match = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if match is None:
            raise ParseError(f"sha256sum said {short(line, 80)}")
        found[match[2]] = match[1]
    return found


def judge_files(found: dict[str, str], want: Files) -> Judgement:
    wrong = [
        f"{path} {'is another' if path in found else 'cannot be read'}"
        for path, wanted in sorted(want.sha256.items())
        if found.get(path) != wanted
    ]
    expected = f"{len(want.sha256)} files as rendered from the plan"
    return failed(listed(wrong), expected) if wrong else passed(expected)
