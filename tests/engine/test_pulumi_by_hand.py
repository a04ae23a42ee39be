"""`pulumi up` by hand: the real engine, the substitute language host, the checkout's own `__main__.py`."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.builders import SPEC
from support.engine_stack import Cluster
from support.leftovers import await_none, locks_of
from support.pulumi_shell import Shell, a_shell

from gpucluster.engine import run
from gpucluster.errors import StateError


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Shell:
    return a_shell(cluster, tmp_path / "checkout")


def up_until(shell: Shell, line: str, how: Callable[["subprocess.Popen[str]"], object]) -> tuple[int, str]:
    """Type `pulumi up`, call the function when the output has `line`; return the exit code and the whole output."""
    parts: list[str] = []
    with shell.cluster.unfinished():
        child = shell.start("pulumi", "up", "--yes", "--skip-preview")
        assert child.stdout is not None
        for one in child.stdout:
            parts.append(one)
            if line in one:
                how(child)
                break
    parts.append(child.communicate(timeout=900)[0])
    return child.returncode, "".join(parts)


def test_typed_up_and_automation_api_share_one_stack(shell: Shell) -> None:
    assert "created" in shell("pulumi", "up", "--yes", "--skip-preview").stdout
    cluster = shell.cluster
    assert run.preview(cluster.target, shell.program).changes == ()
    outputs = json.loads(shell("pulumi", "stack", "output", "--json").stdout)
    assert outputs["head"].startswith("i-")
    assert {one.id for one in run.deployed_resources(cluster.target)} >= {outputs["head"], outputs["bucket"]}
    run.up(cluster.target, shell.program)
    typed = json.loads(shell("pulumi", "preview", "--json").stdout)
    assert set(typed["changeSummary"]) == {"same"}
    shell("pulumi", "destroy", "--exclude-protected", "--yes", "--skip-preview")
    assert [one for one in run.deployed_resources(cluster.target) if not one.protected] == []
    written = {
        str(path.relative_to(shell.folder))
        for path in shell.folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert written == {"Pulumi.yaml", "__main__.py", "stacks/burst.yaml"}, "the checkout stays as it is"


def test_invalid_spec_has_no_traceback(shell: Shell) -> None:
    (shell.folder / "stacks" / "burst.yaml").write_text(SPEC.replace("p5en.48xlarge", "p5en.49xlarge", 1))
    done = shell("pulumi", "preview", check=False)
    assert done.returncode != 0
    assert "'p5en.49xlarge' is not in the catalog" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_failing_program_shows_line(shell: Shell) -> None:
    (shell.folder / "__main__.py").write_text("raise ValueError('nobody foresaw it')\n")
    done = shell("pulumi", "preview", check=False)
    assert done.returncode != 0
    assert "__main__.py" in done.stdout
    assert "ValueError: nobody foresaw it" in done.stdout


def test_ctrl_c_releases_lock_and_next_up_continues(shell: Shell) -> None:
    code, text = up_until(shell, "Vpc burst created", lambda child: os.killpg(child.pid, signal.SIGINT))
    assert code != 0, text
    await_none(shell.cluster)
    assert locks_of(shell.cluster) == []
    shell("pulumi", "up", "--yes", "--skip-preview")
    assert run.preview(shell.cluster.target, shell.program).changes == ()


def test_killed_up_names_next_step_and_next_up_continues(shell: Shell) -> None:
    up_until(shell, "Vpc burst created", lambda child: child.kill())
    await_none(shell.cluster)  # program, language host and provider go with their engine
    assert [str(path) for path in shell.cluster.target.backend.rglob("*.attrs")] == [], (
        "the state has one file"
    )
    done = shell("pulumi", "up", "--yes", "--skip-preview", check=False)
    assert done.returncode != 0
    assert "pulumi cancel" in done.stdout + done.stderr
    shell("pulumi", "cancel", "--yes")
    shell("pulumi", "up", "--yes", "--skip-preview")
    assert run.preview(shell.cluster.target, shell.program).changes == ()


def test_concurrent_runs_are_exclusive(shell: Shell) -> None:
    """Two runs at once: the second gets an error with the next step, and the first completes."""
    cluster = shell.cluster

    def meanwhile(_: object) -> None:
        second = shell("pulumi", "up", "--yes", "--skip-preview", check=False)
        assert second.returncode != 0
        assert "currently locked" in second.stdout + second.stderr
        with pytest.raises(StateError, match=r"another run \(process \d+\) uses 'burst'"):
            run.up(cluster.target, cluster.program)
        with pytest.raises(StateError, match="another run"):
            run.refuse_if_busy(cluster.target)

    code, text = up_until(shell, "Vpc burst created", meanwhile)
    assert code == 0, text
    assert run.preview(cluster.target, shell.program).changes == ()


def test_simultaneous_starts_leave_one_cluster(shell: Shell) -> None:
    """A refused run has no summary of resources. Its error may be that of a lock or of a file that vanishes while the engine reads it:
    Lock and checkForLock of the engine's backend/diy/lock.go list, read and delete without order between two processes.
    """
    both = [shell.start("pulumi", "up", "--yes", "--skip-preview") for _ in range(2)]
    outputs = [child.communicate(timeout=900)[0] for child in both]
    refused = [text for child, text in zip(both, outputs, strict=True) if child.returncode != 0]
    assert [text[-1500:] for text in refused if "Resources:" in text] == []
    shell("pulumi", "up", "--yes", "--skip-preview")
    assert run.preview(shell.cluster.target, shell.program).changes == ()
    vpcs = shell.cluster.client("ec2").describe_vpcs()["Vpcs"]
    assert len([one for one in vpcs if one["CidrBlock"] == "10.42.0.0/16"]) == 1


def test_refusal_names_spec_field_and_next_up_continues(shell: Shell) -> None:
    """Regression: the engine stops the program by SIGINT, which sometimes printed a traceback."""
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
    assert run.preview(shell.cluster.target, shell.program).changes == ()
