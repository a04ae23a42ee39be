"""A stack of the user that does not exist, or that the engine cannot open."""

from pathlib import Path
from typing import Any

import pytest
from pulumi import automation as auto
from pulumi.automation.errors import create_command_error

from gpucluster.engine import user
from gpucluster.errors import StateError

NO_LOGIN = "error: PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions"
NO_KEY = "error: getting secrets manager: passphrase must be set with PULUMI_CONFIG_PASSPHRASE"


@pytest.mark.parametrize("said", [NO_LOGIN, NO_KEY])
def test_unusable_backend_gives_error_with_next_step(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: `gpucluster down burst` without a Pulumi login printed a traceback of fifty lines."""

    def select(*_: Any, **__: Any) -> auto.Stack:
        raise create_command_error(auto.CommandResult("", f"{said}\x1b[2J", 3))

    monkeypatch.setattr(user, "EngineProcess", lambda *_: None)
    monkeypatch.setattr(auto, "select_stack", select)
    with pytest.raises(StateError) as caught:
        user.deployed_resources(Path(), "burst", Path("pulumi"))
    assert caught.value.message == (
        "there is no sandbox 'burst', and Pulumi cannot open a stack of that name: "
        + said.removeprefix("error: ")
    )
    assert "PULUMI_BACKEND_URL, pulumi login" in (caught.value.next_step or "")
