"""Fail a run of pytest that ran too little, also beside a failed test that passes at its second try."""

from collections.abc import Callable

import pytest

TOO_FEW = 6  # an exit code that pytest has not


def end(session: pytest.Session, too_few: Callable[[pytest.TerminalReporter], str]) -> None:
    """End with TOO_FEW if `too_few` has words. Of pytest-xdist only the controller counts."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    worker = hasattr(session.config, "workerinput")
    if not worker and isinstance(reporter, pytest.TerminalReporter) and too_few(reporter):
        session.exitstatus = TOO_FEW
