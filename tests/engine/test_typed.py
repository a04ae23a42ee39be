"""`pulumi up` typed by hand: the real engine, the stand-in language host, the checkout's own `__main__.py`."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import SPEC
from leftovers import await_none, locks_of
from stacked import Cluster
from typed import Shell, a_shell

from gpucluster.engine import run
from gpucluster.errors import StateError


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Shell:
    return a_shell(cluster, tmp_path / "checkout")


def stopped_at(child: "subprocess.Popen[str]", line: str, how: Callable[[], None]) -> str:
    """Let it run until it says `line`, then do that; all that it said."""
    assert child.stdout is not None
    said: list[str] = []
    for one in child.stdout:
        said.append(one)
        if line in one:
            how()
            break
    said.append(child.communicate(timeout=100)[0])
    return "".join(said)


def test_what_is_typed_and_what_the_automation_api_does_are_one_stack(shell: Shell) -> None:
    assert "created" in shell("pulumi", "up", "--yes", "--skip-preview").stdout
    cluster = shell.cluster
    assert run.preview(cluster.target, cluster.program).changes == ()
    outputs = json.loads(shell("pulumi", "stack", "output", "--json").stdout)
    assert outputs["head"].startswith("i-")
    assert {one.id for one in run.standing(cluster.target)} >= {outputs["head"], outputs["bucket"]}
    run.up(cluster.target, cluster.program)
    typed = json.loads(shell("pulumi", "preview", "--json").stdout)
    assert set(typed["changeSummary"]) == {"same"}
    shell("pulumi", "destroy", "--exclude-protected", "--yes", "--skip-preview")
    assert [one for one in run.standing(cluster.target) if not one.protected] == []
    written = {
        str(path.relative_to(shell.folder))
        for path in shell.folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert written == {"Pulumi.yaml", "__main__.py", "stacks/burst.yaml"}, "the checkout stays as it is"


def test_a_wrong_spec_is_its_own_sentence_and_no_traceback(shell: Shell) -> None:
    (shell.folder / "stacks" / "burst.yaml").write_text(SPEC.replace("p5en.48xlarge", "p5en.49xlarge", 1))
    done = shell("pulumi", "preview", check=False)
    assert done.returncode != 0
    assert "'p5en.49xlarge' is not in the catalog" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_program_that_fails_shows_where(shell: Shell) -> None:
    (shell.folder / "__main__.py").write_text("raise ValueError('nobody foresaw it')\n")
    done = shell("pulumi", "preview", check=False)
    assert done.returncode != 0
    assert "__main__.py" in done.stdout
    assert "ValueError: nobody foresaw it" in done.stdout


def test_ctrl_c_gives_the_lock_back_and_the_next_up_goes_on(shell: Shell) -> None:
    child = shell.start("pulumi", "up", "--yes", "--skip-preview")
    said = stopped_at(child, "Vpc burst created", lambda: os.killpg(child.pid, signal.SIGINT))
    assert child.returncode != 0, said
    assert await_none(shell.cluster) == []
    assert locks_of(shell.cluster) == []
    shell("pulumi", "up", "--yes", "--skip-preview")
    assert run.preview(shell.cluster.target, shell.cluster.program).changes == ()


def test_a_killed_up_says_what_to_type_and_the_next_goes_on(shell: Shell) -> None:
    child = shell.start("pulumi", "up", "--yes", "--skip-preview")
    stopped_at(child, "Vpc burst created", child.kill)
    assert await_none(shell.cluster) == [], "program, language host and provider go with their engine"
    done = shell("pulumi", "up", "--yes", "--skip-preview", check=False)
    assert done.returncode != 0
    assert "pulumi cancel" in done.stdout + done.stderr
    shell("pulumi", "cancel", "--yes")
    shell("pulumi", "up", "--yes", "--skip-preview")
    assert run.preview(shell.cluster.target, shell.cluster.program).changes == ()


def test_two_at_once_never_mix(shell: Shell) -> None:
    """Typed beside typed, and the verbs beside typed: the second is told what works, and the first comes to its end."""
    cluster = shell.cluster
    first = shell.start("pulumi", "up", "--yes", "--skip-preview")

    def meanwhile() -> None:
        said = "EOF"
        while "EOF" in said:  # the engine's own refusal, too: it read the state while the first wrote it
            second = shell("pulumi", "up", "--yes", "--skip-preview", check=False)
            assert second.returncode != 0
            said = second.stdout + second.stderr
        assert "currently locked" in said
        with pytest.raises(StateError, match=r"another run \(process \d+\) is working on 'burst'"):
            run.up(cluster.target, cluster.program)
        with pytest.raises(StateError, match="another run"):
            run.refuse_if_busy(cluster.target)

    said = stopped_at(first, "Vpc burst created", meanwhile)
    assert first.returncode == 0, said
    assert run.preview(cluster.target, cluster.program).changes == ()


def test_two_that_begin_together_leave_one_cluster(shell: Shell) -> None:
    both = [shell.start("pulumi", "up", "--yes", "--skip-preview") for _ in range(2)]
    said = [child.communicate(timeout=100)[0] for child in both]
    assert all(
        child.returncode == 0 or "currently locked" in text for child, text in zip(both, said, strict=True)
    ), said
    shell("pulumi", "up", "--yes", "--skip-preview")
    assert run.preview(shell.cluster.target, shell.cluster.program).changes == ()
    vpcs = shell.cluster.client("ec2").describe_vpcs()["Vpcs"]
    assert len([one for one in vpcs if one["CidrBlock"] == "10.42.0.0/16"]) == 1


def test_a_refusal_names_the_field_as_our_own_verbs_do_and_the_next_up_goes_on(shell: Shell) -> None:
    """The engine says goodbye to the program by SIGINT, which was a traceback now and then."""
    shell.cluster.api.model.faults.next_error("RunInstances", "VcpuLimitExceeded")
    done = shell("pulumi", "up", "--yes", "--skip-preview", check=False)
    assert done.returncode != 0
    _, _, diagnostics = done.stdout.partition("Diagnostics:")
    assert "aws:ec2:Instance (burst-head)" in diagnostics
    assert "error: head.machine: the account's quota does not allow it; " in diagnostics
    assert "next: ask for more in Service Quotas, or make head.machine smaller" in diagnostics
    assert "expected to have version" not in diagnostics
    assert "Traceback" not in done.stdout + done.stderr
    shell("pulumi", "up", "--yes", "--skip-preview")
    assert run.preview(shell.cluster.target, shell.cluster.program).changes == ()
