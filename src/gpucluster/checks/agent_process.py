"""Check that no signal has stopped the agent: systemd calls such a process active, and it follows no change of the plan."""

import re
from dataclasses import dataclass

from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, passed
from gpucluster.plan import names
from gpucluster.text import short

# of its main process, which proc(5) calls State; the process ends if it is not there
_STATE = 'pid=$(systemctl show --property=MainPID --value "$1") && sed -n "s/^State:[[:space:]]*//p" "/proc/$pid/status"'
_STOPPED = ("T", "t")  # by a signal; by a debugger


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProcess:
    """The unit's main process runs, or waits for something."""

    unit: str = names.AGENT_UNIT


def query_agent(want: AgentProcess) -> tuple[Query, ...]:
    return (Query(argv=("sh", "-c", _STATE, "sh", want.unit)),)


def parse_agent(got: tuple[QueryOutput, ...]) -> str:
    """The state as the kernel prints it: `S (sleeping)`."""
    state = got[0].text().strip()
    if re.fullmatch(r"[A-Za-z] \([a-z ]+\)", state) is None:
        raise ParseError(f"the state of the process is {short(state, 80)!r}")
    return state


def evaluate_agent(found: str, _want: AgentProcess) -> CheckResult:
    expected = "no signal has stopped the agent"
    return failed(found, expected) if found.startswith(_STOPPED) else passed(found, expected)
