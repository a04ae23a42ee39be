"""Check that slurmctld's user can run ResumeProgram, and that the daemon takes the request.

A request is a hint: the daemon reads from Slurm which nodes are needed, so one for a node that no job needs starts nothing.
"""

import re
from dataclasses import dataclass

from gpucluster.checks import remedies
from gpucluster.checks.check import TIMED_OUT, CheckResult, ParseError, Query, QueryOutput, failed, passed
from gpucluster.text import short

TAKEN_S = 6  # the daemon is woken by the request; without the wake-up it looks each second
_RUN = 'echo $$; exec "$1" "$2"'  # exec keeps the process id, which is in the name of the request
_WAIT = (
    f"for n in $(seq {TAKEN_S * 4}); do "
    'ls "$1"/new/*."$2".resume >/dev/null 2>&1 || { echo taken; exit 0; }; sleep 0.25; done; echo waits'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookWant:
    """ResumeProgram, its user, a node for its argument, and the spool of its requests."""

    program: str
    user: str
    node: str
    spool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """The error of the program, or empty; whether its request was taken."""

    error: str
    taken: bool


def query_hook(want: HookWant) -> tuple[Query, ...]:
    run = ("runuser", f"--user={want.user}", "--", "sh", "-c", _RUN, "sh", want.program, want.node)
    return (
        Query(argv=run),
        Query(argv=("sh", "-c", _WAIT, "sh", want.spool, "{fed}"), limit_s=TAKEN_S + 10),
    )


def parse_hook(got: tuple[QueryOutput, ...]) -> Hook:
    """The result of the program, and of the wait."""
    ran, waited = got
    if ran.code != 0:
        words = "no answer in time" if ran.code == TIMED_OUT else short(ran.stderr, 120)
        return Hook(error=words or f"exit {ran.code}", taken=False)
    if not re.fullmatch(r"[0-9]{1,10}", ran.stdout.strip()):
        raise ParseError(f"the hook printed {short(ran.stdout, 60)!r}")
    word = waited.text().strip()
    if word not in ("taken", "waits"):
        raise ParseError(f"the wait for the request printed {short(word, 60)!r}")
    return Hook(error="", taken=word == "taken")


def evaluate_hook(found: Hook, want: HookWant) -> CheckResult:
    expected = f"{want.user} runs {want.program}, and the daemon takes its request"
    if found.error:
        return failed(f"{want.program}: {found.error}", expected, (), _writable(want))
    if not found.taken:
        remedy = f"on {{machine}}: {remedies.restart('gpucluster-elastic')}"
        return failed(f"the request still waits in {want.spool}/new after {TAKEN_S} s", expected, (), remedy)
    return passed(expected)


def _writable(want: HookWant) -> str:
    """Make the spool a writable folder of its file system again: unmount what is on it, and remount that read-write."""
    folders = " ".join((*(f"{want.spool}/{part}" for part in ("new", "tmp")), want.spool))
    return (
        f"on {{machine}}: for folder in {folders}; do while mountpoint -q $folder; do umount $folder; done; done; "
        f"df {want.spool}; touch {want.spool}/new || mount -o remount,rw $(findmnt -no TARGET --target {want.spool})"
    )
