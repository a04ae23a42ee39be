"""The capsule itself: one machine from the image with a user script of ours, and every way in which it can end."""

import base64
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import ROOT, gpucluster

from gpucluster.errors import StateError
from gpucluster.sandbox import capsule, host, images, inside, ledger, places
from gpucluster.sandbox.ledger import Home

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]

NAME = "probe"
UNIGNORED = (
    "/usr/bin/env",
    "--default-signal=INT",
)  # a script's background job has it ignored, and hands that on
SCRIPT = """#!/bin/sh
echo "script ran on $(hostname) with $(ls /dev | grep -c '^nvidia') GPUs" >/dev/console
"""


def eventually(what, seen, within=30.0):
    """Poll; the deadline's message says what was waited for."""
    end = time.monotonic() + within
    while not (found := seen()):
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        time.sleep(0.02)
    return found


def on_the_host():
    """What a sandbox could leave on the host, whatever its name."""
    mounts = {
        line
        for line in Path("/proc/mounts").read_text().splitlines()
        if "gpc" in line or "gpucluster" in line
    }
    links = {p.name for p in Path("/sys/class/net").iterdir()}
    namespaces = set(Path("/run/netns").iterdir()) if Path("/run/netns").is_dir() else set()
    return mounts, links, namespaces


def processes(name):
    """Processes of the sandbox: in its control groups, or started for it."""
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
    """The host and the image; whatever a test leaves is a failure of that test."""
    before = on_the_host()
    found = host.check(host.observe(places.STATE_ROOT))
    image = images.find_or_build(lambda _: None)
    yield found, image
    left = [Home(name=name) for name in (NAME, f"{NAME}2")]
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
        self.home, self.found = Home(name=name), found
        lock = ledger.claim(self.home)
        ledger.empty(self.home, found.trees)
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
        """One instance, until its user script has spoken; its id."""
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
        eventually("the lock is free", lambda: not ledger.alive(self.home))
        eventually("no process is left", lambda: not processes(self.home.name))

    def clean(self):
        ledger.clean(self.home, self.found.trees)


@pytest.fixture
def probe(ground) -> Iterator[Probe]:
    made = Probe(NAME, *ground)
    yield made
    if ledger.alive(made.home):
        made.running.kill()
    made.running.process.wait(timeout=10)
    made.clean()


def test_an_instance_boots_the_image_runs_its_user_script_and_ends_whole(probe):
    instance = probe.launch()
    address = probe.ec2.describe_instances()["Reservations"][0]["Instances"][0]["PrivateIpAddress"]
    assert f"script ran on ip-{address.replace('.', '-')} with 8 GPUs" in probe.console(instance)
    assert probe.state(instance) == "running"
    said = probe.ec2.get_console_output(InstanceId=instance)["Output"]
    assert "script ran on" in said or b"script ran on" in base64.b64decode(said)
    probe.ec2.terminate_instances(InstanceIds=[instance])
    eventually("it is terminated", lambda: probe.state(instance) == "terminated")
    assert not (probe.home.instances / instance).exists()
    assert not [g for g in groups(NAME) if (Path(g) / instance).exists()]


def test_a_reboot_keeps_the_disk_and_a_poweroff_ends_the_instance(probe):
    instance = probe.launch()
    first = probe.resident(instance).leader
    enter(probe, instance, "touch", "/root/kept")
    enter(probe, instance, "systemctl", "reboot", check=False)
    eventually("it is up again", lambda: probe_leader(probe, instance) not in (None, first))
    eventually(
        "its files are there", lambda: enter(probe, instance, "test", "-e", "/root/kept", check=False) == 0
    )
    eventually("it takes orders", lambda: enter(probe, instance, "systemctl", "poweroff", check=False) == 0)
    eventually(
        "it has stopped, as an instance does that was launched without a word about it",
        lambda: probe.state(instance) == "stopped",
    )


def probe_leader(probe, instance):
    return next(
        (r.leader for r in inside.residents(probe.home, probe.found.trees) if r.instance == instance), None
    )


def enter(probe, instance, *command, check=True):
    argv = inside.enter_argv(probe.resident(instance).leader, command, user=None, term="dumb")
    code = subprocess.run(argv, check=False, capture_output=True).returncode
    assert code == 0 or not check
    return code


CODES = {
    "the command's own code": (("sh", "-c", "exit 37"), 37),
    "a command that is not there": (("no-such-program",), 127),
    "success": (("true",), 0),
}


def test_exec_hands_through_input_and_the_exact_exit_code(probe):
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


def test_an_image_holds_nothing_of_the_machine_that_built_it():
    """A proxy of the host, password and all, stood in the image's apt.conf.d for every job to read."""
    image = images.find_or_build(print)
    base = image.layers[-1]
    assert "slurmd\t" in (base.parent / "manifest.txt").read_text()
    texts = {p: p.read_text(errors="replace") for p in (base / "etc/apt").rglob("*") if p.is_file()}
    assert texts
    assert [p for p, text in texts.items() if "Acquire::" in text or "://" in text] == []
    for name in ("etc/hostname", "etc/resolv.conf", "etc/munge/munge.key"):
        assert not os.path.lexists(base / name), name
    assert list((base / "etc/ssh").glob("ssh_host_*")) == []


def test_the_host_sees_a_port_and_nothing_else(ground):
    before = on_the_host()
    made = Probe(NAME, *ground)
    try:
        made.launch()
        assert on_the_host() == before
    finally:
        made.running.kill()
        made.clean()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", made.running.port), timeout=1)


def test_a_killed_supervisor_takes_everything_along(probe):
    probe.launch()
    probe.running.keep()
    supervisor = next(p for p in processes(NAME) if is_supervisor(p))
    os.kill(int(supervisor), signal.SIGKILL)
    probe.running.process.wait(timeout=10)
    probe.gone()
    assert f"{NAME}: not running, but it left files" in gpucluster("sandbox", "status", NAME).stdout


def is_supervisor(pid):
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return capsule.SUPERVISOR.encode() in words and b"unshare" not in words[0] and b"-I" not in words


def test_a_capsule_that_nobody_said_keep_to_ends_with_its_starter(probe):
    probe.launch()
    probe.running.hello.close()  # what the kernel does for a starter that was killed
    probe.running.process.wait(timeout=10)
    probe.gone()


def test_two_names_live_at_once_and_a_name_only_once(ground):
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


def an_up_in_the_middle_of_its_engine_run(stack):
    up = subprocess.Popen(
        [*UNIGNORED, sys.executable, "-m", "gpucluster.cli.start", "sandbox", "up", str(stack)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert up.stderr is not None
    for line in up.stderr:
        if "created" in line:
            return up
    raise AssertionError("the engine made nothing")


@pytest.mark.usefixtures("ground")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_signal_in_the_middle_of_an_up_leaves_nothing(stack, number):
    up = an_up_in_the_middle_of_its_engine_run(stack)
    up.send_signal(number)
    said = up.communicate(timeout=60)[1]
    assert up.returncode == 128 + number, said
    assert "nothing of this try is left" in said
    assert "Traceback" not in said
    assert not Home(name=NAME).path.exists()


@pytest.mark.usefixtures("ground")
def test_a_killed_up_leaves_only_files_which_down_removes(stack):
    up = an_up_in_the_middle_of_its_engine_run(stack)
    up.kill()
    up.communicate(timeout=60)
    eventually("everything ended", lambda: not processes(NAME) and not ledger.alive(Home(name=NAME)))
    gpucluster("sandbox", "down", NAME)
