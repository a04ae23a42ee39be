"""The state of the agent's process, from a real one that a signal stops."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from gpucluster.checks.agent_process import AgentProcess, evaluate_agent, parse_agent
from gpucluster.checks.check import CheckStatus, ParseError, QueryOutput


def _state(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition("\t")[2] for line in lines if line.startswith("State:"))


def _verdict(state: str) -> CheckStatus:
    return evaluate_agent(
        parse_agent((QueryOutput(code=0, stdout=state, stderr=""),)), AgentProcess()
    ).verdict


def test_process_that_a_signal_stopped_is_found() -> None:
    child = subprocess.Popen(["/bin/sleep", "60"])
    try:
        assert _verdict(_state(child.pid)) is CheckStatus.PASS
        child.send_signal(signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        assert _verdict(_state(child.pid)) is CheckStatus.FAIL
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("text", ["", "42\n", "S (sleeping)\nT (stopped)\n", "T"])
def test_another_text_is_no_state(text: str) -> None:
    with pytest.raises(ParseError):
        parse_agent((QueryOutput(code=0, stdout=text, stderr=""),))
