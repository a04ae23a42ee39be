"""A stack of the user that does not exist, or that the engine cannot open."""

import shlex
from pathlib import Path

import pytest

from gpucluster.engine import user
from gpucluster.errors import StateError

NO_LOGIN = "error: PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions"
NO_KEY = "error: getting secrets manager: passphrase must be set with PULUMI_CONFIG_PASSPHRASE"
ABSENT = "error: no stack named 'burst' found"


def a_pulumi(folder: Path, said: str, code: int) -> Path:
    """A program that knows its version, and answers everything else with an error."""
    path = folder / "pulumi"
    path.write_text(
        f"#!/bin/sh\n[ $1 = version ] && echo v3.259.0 && exit\necho {shlex.quote(said)} >&2\nexit {code}\n"
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("said", [NO_LOGIN, NO_KEY])
def test_unusable_backend_gives_error_with_next_step(said: str, tmp_path: Path) -> None:
    """Regression: `gpucluster down burst` without a Pulumi login printed a traceback of fifty lines."""
    with pytest.raises(StateError) as caught:
        user.deployed_resources(tmp_path, "burst", a_pulumi(tmp_path, f"{said}\x1b[2J", 3))
    assert caught.value.message == "Pulumi cannot open a stack 'burst': " + said.removeprefix("error: ")
    assert "PULUMI_BACKEND_URL, pulumi login" in (caught.value.next_step or "")


def test_missing_stack_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="there is no cluster 'burst': neither a sandbox nor a Pulumi stack"):
        user.deployed_resources(tmp_path, "burst", a_pulumi(tmp_path, ABSENT, 6))


def test_stack_is_there_absent_or_not_known(tmp_path: Path) -> None:
    """A backend that does not answer is no missing stack."""
    assert user.stack_exists(tmp_path, "burst", a_pulumi(tmp_path, "", 0))
    assert not user.stack_exists(tmp_path, "burst", a_pulumi(tmp_path, ABSENT, 6))
    with pytest.raises(StateError, match="Pulumi cannot look: PULUMI_ACCESS_TOKEN must be set"):
        user.stack_exists(tmp_path, "burst", a_pulumi(tmp_path, f"{NO_LOGIN}\x1b[2J", 3))
    with pytest.raises(StateError, match=r"Pulumi did not answer: .*no such program"):
        user.stack_exists(tmp_path, "burst", tmp_path / "nothing")
