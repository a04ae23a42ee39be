"""The capsule: one machine with a user script of the test, and every way in which a capsule can end."""

import base64
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import ROOT, gpucluster, note
from support.waiting import BOUND_S, eventually

from gpucluster.errors import StateError
from gpucluster.sandbox import host_checks, paths, state_dir
from gpucluster.sandbox.capsule import process as capsule
from gpucluster.sandbox.images import layers
from gpucluster.sandbox.machines import inside
from gpucluster.sandbox.state_dir import SandboxDir

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]

NAME = "probe"
UNIGNORED = (
    "/usr/bin/env",
    "--default-signal=INT",
)  # a background job of a script inherits SIGINT as ignored
SCRIPT = """#!/bin/sh
echo "script ran on $(hostname) with $(ls /dev | grep -c '^nvidia') GPUs" >/dev/console
"""


def on_the_host():
    """Return the mounts, links and network namespaces that a sandbox can leave on the host."""
    mounts = {
        line
        for line in Path("/proc/mounts").read_text().splitlines()
        if "gpc" in line or "gpucluster" in line
    }
    links = {p.name for p in Path("/sys/class/net").iterdir()}
    namespaces = set(Path("/run/netns").iterdir()) if Path("/run/netns").is_dir() else set()
    return mounts, links, namespaces


def processes(name):
    """Return the processes in the sandbox's control groups, and those with its name in the command line."""
    group, word = f"/gpc-{name}".encode(), f'"name": "{name}"'.encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if group in (process / "cgroup").read_bytes() or word in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def groups(name):
    return [str(p) for p in Path("/sys/fs/cgroup").glob(f"**/gpc-{name}")]


@pytest.fixture
def ground():
    """The host and the image. A test that leaves something on the host fails."""
    for name in (NAME, f"{NAME}2"):
        note(name)
    before = on_the_host()
    found = host_checks.check(host_checks.observe(paths.STATE_ROOT))
    image = layers.find_or_build(lambda _: None, slurm="24.11")
    yield found, image
    left = [SandboxDir(name=name) for name in (NAME, f"{NAME}2")]
    try:
        assert on_the_host() == before
        assert [processes(home.name) for home in left] == [[], []]
        assert [groups(home.name) for home in left] == [[], []]
        assert not [home.path for home in left if home.path.exists()]
    finally:
        for home in left:
            if home.path.exists() or groups(home.name):
                gpucluster("sandbox", "down", home.name, check=False)


class Probe:
    """A capsule without a cluster."""

    def __init__(self, name, found, image):
        self.home, self.found = SandboxDir(name=name), found
        lock = state_dir.claim(self.home)
        state_dir.empty(self.home, found.trees)
        self.home.operator.write_text('{"access_key": "AKIAPROBE", "secret": "probe"}')
        try:
            self.running = capsule.start(
                self.home,
                lock,
                region="us-east-1",
                image="probe-image",
                layers=image.layers,
                trees=found.trees,
                gpus={"p5en.48xlarge": 8},
                room=found.machines,
            )
        finally:
            os.close(lock)
        self.home.endpoint.write_text(
            f'{{"endpoint": "http://127.0.0.1:{self.running.port}", "region": "us-east-1"}}'
        )
        self.ec2 = self.home.client("ec2")

    def launch(self, script=SCRIPT):
        """Launch one instance, wait for the output of its user script, and return its id."""
        image = self.ec2.describe_images(Owners=["self"])["Images"][0]["ImageId"]
        answer = self.ec2.run_instances(
            ImageId=image, InstanceType="p5en.48xlarge", MinCount=1, MaxCount=1, UserData=script
        )
        instance = answer["Instances"][0]["InstanceId"]
        eventually("the user script ran", lambda: "script ran on" in self.console(instance))
        return instance

    def console(self, instance):
        path = self.home.console / instance
        return path.read_text(errors="replace") if path.exists() else ""

    def state(self, instance):
        answer = self.ec2.describe_instances(InstanceIds=[instance])
        return answer["Reservations"][0]["Instances"][0]["State"]["Name"]

    def resident(self, instance):
        return inside.find(self.home, self.found.trees, instance)

    def gone(self):
        """Wait until the lock is free and no process is left. AssertionError after BOUND_S."""
        eventually("the lock is free", lambda: not state_dir.alive(self.home))
        eventually("no process is left", lambda: not processes(self.home.name))

    def clean(self):
        state_dir.clean(self.home, self.found.trees)


@pytest.fixture
def probe(ground) -> Iterator[Probe]:
    made = Probe(NAME, *ground)
    yield made
    if state_dir.alive(made.home):
        made.running.kill()
    made.running.process.wait(timeout=BOUND_S)
    made.clean()


def test_instance_boots_runs_its_user_script_and_terminates_completely(probe):
    instance = probe.launch()
    address = probe.ec2.describe_instances()["Reservations"][0]["Instances"][0]["PrivateIpAddress"]
    assert f"script ran on ip-{address.replace('.', '-')} with 8 GPUs" in probe.console(instance)
    assert probe.state(instance) == "running"
    output = probe.ec2.get_console_output(InstanceId=instance)["Output"]
    assert "script ran on" in output or b"script ran on" in base64.b64decode(output)
    probe.ec2.terminate_instances(InstanceIds=[instance])
    eventually("it is terminated", lambda: probe.state(instance) == "terminated")
    assert not (probe.home.instances / instance).exists()
    assert not [g for g in groups(NAME) if (Path(g) / instance).exists()]


def test_reboot_keeps_the_disk_and_poweroff_stops_the_instance(probe):
    instance = probe.launch()
    first = probe.resident(instance).leader
    enter(probe, instance, "touch", "/root/kept")
    enter(probe, instance, "systemctl", "reboot", check=False)
    eventually("the machine has booted again", lambda: probe_leader(probe, instance) not in (None, first))
    eventually(
        "its files are on the disk",
        lambda: enter(probe, instance, "test", "-e", "/root/kept", check=False) == 0,
    )
    eventually(
        "systemd accepts the poweroff",
        lambda: enter(probe, instance, "systemctl", "poweroff", check=False) == 0,
    )
    eventually(
        "it is stopped, the default of an instance for its own shutdown",
        lambda: probe.state(instance) == "stopped",
    )


def probe_leader(probe, instance):
    return next(
        (r.leader for r in inside.running_machines(probe.home, probe.found.trees) if r.instance == instance),
        None,
    )


def enter(probe, instance, *command, check=True):
    argv = inside.enter_argv(probe.resident(instance).leader, command, user=None, term="dumb")
    code = subprocess.run(argv, check=False, capture_output=True).returncode
    assert code == 0 or not check
    return code


CODES = {
    "the command's own code": (("sh", "-c", "exit 37"), 37),
    "a missing command": (("no-such-program",), 127),
    "success": (("true",), 0),
}


def test_exec_passes_input_and_exit_code(probe):
    probe.running.keep()
    instance = probe.launch()
    for command, code in CODES.values():
        done = gpucluster("sandbox", "exec", NAME, instance, "--", *command, check=False)
        assert done.returncode == code, done.stderr
    user = ("--user", "researcher")
    assert gpucluster("sandbox", "exec", NAME, instance, *user, "--", "id", "-un").stdout == "researcher\n"
    assert (
        gpucluster(
            "sandbox", "exec", NAME, instance, *user, "--", "sh", "-c", "exit 5", check=False
        ).returncode
        == 5
    )
    assert gpucluster("sandbox", "exec", NAME, instance, "--", "cat", stdin="a b\n").stdout == "a b\n"
    assert gpucluster("sandbox", "exec", NAME, "nobody", "--", "true", check=False).returncode == 2
    assert "script ran on" in gpucluster("sandbox", "logs", NAME, instance).stdout
    gpucluster("sandbox", "down", NAME)
    assert gpucluster("sandbox", "down", NAME, check=False).returncode == 2


def test_image_contains_no_settings_of_its_build_machine():
    """The image's apt.conf.d contained the build machine's proxy with its password, readable by every job."""
    image = layers.find_or_build(print, slurm="24.11")
    base = image.layers[-1]
    assert "slurmd\t" in (base.parent / "manifest.txt").read_text()
    texts = {p: p.read_text(errors="replace") for p in (base / "etc/apt").rglob("*") if p.is_file()}
    assert texts
    assert [p for p, text in texts.items() if "Acquire::" in text or "://" in text] == []
    for name in ("etc/hostname", "etc/resolv.conf", "etc/munge/munge.key"):
        assert not os.path.lexists(base / name), name
    assert list((base / "etc/ssh").glob("ssh_host_*")) == []


def test_capsule_adds_no_mount_link_or_namespace_to_the_host(ground):
    before = on_the_host()
    made = Probe(NAME, *ground)
    try:
        made.launch()
        assert on_the_host() == before
    finally:
        made.running.kill()
        made.clean()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", made.running.port), timeout=BOUND_S)


def test_killed_supervisor_ends_every_process(probe):
    probe.launch()
    probe.running.keep()
    supervisor = next(p for p in processes(NAME) if is_supervisor(p))
    os.kill(int(supervisor), signal.SIGKILL)
    probe.running.process.wait(timeout=BOUND_S)
    probe.gone()
    assert f"{NAME}: not running, but it left files" in gpucluster("sandbox", "status", NAME).stdout


def is_supervisor(pid):
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return capsule.SUPERVISOR.encode() in words and b"unshare" not in words[0] and b"-I" not in words


def test_capsule_without_keep_ends_with_its_starter(probe):
    probe.launch()
    assert probe.running.process.poll() is None
    probe.running.keep_alive.close()  # the kernel closes it for a starter that was killed
    probe.running.process.wait(timeout=BOUND_S)
    probe.gone()


def test_two_sandboxes_run_at_once_but_only_one_of_each_name(ground):
    first, second = Probe(NAME, *ground), Probe(f"{NAME}2", *ground)
    try:
        with pytest.raises(StateError, match="is up, or on its way up or down"):
            Probe(NAME, *ground)
        instance = second.launch()
        first.running.kill()
        assert second.state(instance) == "running"
    finally:
        for made in (first, second):
            if made.running.process.poll() is None:
                made.running.kill()
            made.clean()


@pytest.fixture
def stack(tmp_path):
    """The burst stack under the probe's name."""
    path = tmp_path / f"{NAME}.yaml"
    path.write_text((ROOT / "stacks" / "burst.yaml").read_text().replace("name: burst", f"name: {NAME}", 1))
    return path


def up_during_its_engine_run(stack):
    up = subprocess.Popen(
        [*UNIGNORED, sys.executable, "-m", "gpucluster.cli", "sandbox", "up", str(stack)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert up.stderr is not None
    for line in up.stderr:
        if "created" in line:
            return up
    raise AssertionError("the engine created nothing")


@pytest.mark.usefixtures("ground")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_interrupted_up_leaves_nothing(stack, number):
    up = up_during_its_engine_run(stack)
    up.send_signal(number)
    errors = up.communicate(timeout=BOUND_S)[1]
    assert up.returncode == 128 + number, errors
    assert "nothing of this try is left" in errors
    assert "Traceback" not in errors
    assert not SandboxDir(name=NAME).path.exists()


@pytest.mark.usefixtures("ground")
def test_down_removes_the_files_of_a_killed_up(stack):
    up = up_during_its_engine_run(stack)
    up.kill()
    up.communicate(timeout=BOUND_S)
    eventually("everything ended", lambda: not processes(NAME) and not state_dir.alive(SandboxDir(name=NAME)))
    gpucluster("sandbox", "down", NAME)
    assert not SandboxDir(name=NAME).path.exists()
