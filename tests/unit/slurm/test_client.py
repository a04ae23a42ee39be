"""The commands of the client: Slurm stores the text that was sent."""

from pathlib import Path

import pytest

from gpucluster.slurm.client import Scontrol

# scontrol removes one quote at each end of a reason (update_node.c of 24.11.5 and 26.05.3).
SCONTROL = r"""#!/bin/sh
for word; do
    case "$word" in reason=*) text=${word#reason=}; text=${text#\"}; printf %s "${text%\"}" ;; esac
done >"$0.stored"
"""


@pytest.mark.parametrize(
    "reason",
    [
        "fan 3 is loud (by ann)",
        '"gpucluster: [health] gone (by ann)',
        'gpucluster: no h200: the cloud said "none"',
        '"',
        '""a" b""',
        "a=b, 'c' and \\",
    ],
)
def test_reason_is_stored_as_it_was_sent(reason: str, tmp_path: Path) -> None:
    """`--because '"gpucluster: [health] gone'` became a reason of the daemon's, because scontrol removed the quote."""
    program = tmp_path / "scontrol"
    program.write_text(SCONTROL)
    program.chmod(0o755)
    Scontrol(str(program), near=tmp_path / "none").update_nodes(["gpu01"], "drain", reason)
    assert (tmp_path / "scontrol.stored").read_text() == reason
