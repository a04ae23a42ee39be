"""Wait until the agent of a host that exists has brought this machine to a bundle: what the playbook ends with.

`python -m gpucluster.node.settled DIGEST SECONDS`: exit 0 and one line, or exit 1 and the step that stands in the way.
"""

import json
import sys
from typing import Any, cast

from gpucluster.node import effects, state
from gpucluster.node.machine import Machine
from gpucluster.plan import names

LOOK_S = 0.3
STATUS = f"{names.SITE_DIR}/{names.SITE_STATUS}"


def main(argv: list[str]) -> int:
    digest, within_s = argv[0], float(argv[1])
    why = wait(effects.real(), digest, within_s)
    print(why or f"ready with bundle {digest[:12]}")  # noqa: T201  the playbook reads it
    return 1 if why else 0


def wait(machine: Machine, digest: str, within_s: float) -> str:
    """Empty when the agent has ended and says that `digest` is applied; else why not, after `within_s`."""
    end = machine.now() + within_s
    while why := missing(machine, digest):
        if machine.now() >= end:
            return f"not ready after {within_s:g} s: {why}"
        machine.pause(LOOK_S)
    return ""


def missing(machine: Machine, digest: str) -> str:
    """What is not so yet, in one line."""
    unit = machine.run(["systemctl", "show", "--property=SubState", "--value", names.AGENT_UNIT], check=False)
    status = _status(machine)
    waits = [f"{step.name}: {step.detail}" for step in state.load(machine).steps if not step.ok]
    if unit.stdout.strip() != "exited":
        said = "; ".join(waits[-1:]) or "it has said nothing yet"
        return f"the agent is {unit.stdout.strip() or 'not there'}; {said}"
    if status.get("ready") is not True:
        return str(status.get("detail") or "") or "the agent has ended without a word"
    return (
        ""
        if status.get("applied") == digest
        else f"the agent has applied {status.get('applied')}, not {digest}"
    )


def _status(machine: Machine) -> dict[str, Any]:
    try:
        found = json.loads(machine.read(STATUS))
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
