"""What `diff` says of jobs whose machine ends after the edit."""

import pytest
from support.audited_edits import STACKS
from support.builders import changed
from support.reviewed import a_diff

STEADY = (STACKS / "steady.yaml").read_text()
_USR1 = "{signal: USR1, lead: 20s, grace: 90s, script: /opt/site/leave}"


def _running(new: str) -> str:
    found = a_diff(STEADY, changed(STEADY, (_USR1, new))).effects
    assert found is not None
    return found.running


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (
            "{signal: TERM, lead: 20s, grace: 90s, script: /opt/site/leave}",
            "go on; those on h200 get TERM and not USR1 before their machine ends: a batch script without a trap for it ends then",
        ),
        (
            "{signal: USR1, lead: 1m, grace: 90s, script: /opt/site/leave}",
            "go on; those on h200 are requeued 1m before their machine ends, and not 20s",
        ),
        (
            "{signal: USR1, lead: 20s, grace: 30s, script: /opt/site/leave}",
            "go on; those on h200 are requeued 30s after the signal, and not 90s, if their machine has no fixed end",
        ),
        ("{signal: USR1, lead: 10s, grace: 2m, script: /opt/site/leave}", "go on"),
    ],
)
def test_job_that_gets_another_signal_or_less_time_is_told(new: str, said: str) -> None:
    """Regression: running jobs went on, and a script that waits for USR1 was ended by TERM."""
    assert _running(new) == said
