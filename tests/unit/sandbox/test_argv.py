"""Command lines of the sandbox's programs: whole lines, because each word has a reason."""

import json
from dataclasses import asdict
from pathlib import Path

from gpucluster import shipment
from gpucluster.plan import names
from gpucluster.sandbox.capsule import network, process
from gpucluster.sandbox.capsule.private_mounts import Overlay, within
from gpucluster.sandbox.capsule.process import SupervisorInput
from gpucluster.sandbox.images import bootstrap
from gpucluster.sandbox.machines import inside, machine
from gpucluster.sandbox.machines.inside import RunningMachine
from gpucluster.sandbox.machines.machine import MachineSpec

SPEC = MachineSpec(id="i-0a", address="10.42.1.4", mac="02:00:0a:2a:01:04", gpus=2, number=3)


def test_machine_joins_its_network_before_nspawn_mounts_sys():
    nodes = [Path("/run/gpc/dev/nvidia0"), Path("/run/gpc/dev/nvidia1")]
    assert machine.nspawn_argv(SPEC, root=Path("/run/gpc/m/i-0a"), devices=nodes) == [
        "nsenter",
        "--net=/run/netns/i-0a",
        "systemd-nspawn",
        "--quiet",
        "--register=no",
        "--keep-unit",
        "--capability=CAP_NET_ADMIN",
        "--directory=/run/gpc/m/i-0a",
        "--machine=i-0a",
        "--hostname=ip-10-42-1-4",
        "--resolv-conf=off",
        "--timezone=off",
        "--bind=/run/gpc/dev/nvidia0:/dev/nvidia0",
        "--bind=/run/gpc/dev/nvidia1:/dev/nvidia1",
        "--boot",
        "systemd.unit=multi-user.target",
    ]


def test_machine_has_one_address_and_routes_through_the_metadata_address():
    assert network.connect_batch(
        "i-0a", link="v3", address="10.42.1.4", mac="02:00:0a:2a:01:04"
    ).splitlines() == [
        "netns add i-0a",
        "link add v3 type veth peer name eth0 netns i-0a address 02:00:0a:2a:01:04",
        "link set v3 master br0 up",
        "route replace 10.42.1.4/32 dev br0",
    ]
    assert "route add default via 169.254.169.254 dev eth0 src 10.42.1.4" in network.inside_batch(
        address="10.42.1.4"
    )


def test_capsule_ends_with_its_outer_process_and_has_no_secret():
    charge = SupervisorInput(
        name="one",
        region="us-east-1",
        image="img",
        layers=("/a", "/b"),
        trees={"/sys/fs/cgroup/unified": ()},
        gpus={"p5": 8},
        room=18,
        listener=3,
        keep_alive=4,
        lock=5,
        state_root="/state",
    )
    argv = process.argv(charge, "module")
    assert argv[:7] == ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]
    assert argv[-2] == "module"
    assert json.loads(argv[-1]) == json.loads(json.dumps(asdict(charge)))


def test_build_runs_in_mounts_that_end_with_it():
    overlay = Overlay(lower=(Path("/base"),), upper=Path("/x/u"), work=Path("/x/w"), at=Path("/x/m"))
    argv = within(["true", "--flag"], overlay=overlay, proc=Path("/x/m/proc"))
    assert argv[:4] == ["setpriv", "--pdeathsig", "KILL", "--"]  # also after a kill -9 of whoever started it
    assert "--kill-child" in argv
    assert argv[-2:] == ["true", "--flag"]
    assert overlay.options == "lowerdir=/base,upperdir=/x/u,workdir=/x/w"


def test_command_runs_as_root_with_a_clean_environment():
    argv = inside.enter_argv(77, ["id", "-u"], user=None, term="xterm")
    assert argv[:6] == ["nsenter", "--pid=/proc/77/ns/pid", "--no-fork", "--", "sh", "-c"]
    assert argv[7:] == [
        "sh",
        "77",
        "--mount=/proc/77/ns/mnt",
        "--uts=/proc/77/ns/uts",
        "--ipc=/proc/77/ns/ipc",
        "--net=/proc/77/ns/net",
        "--",
        "env",
        "-i",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "LANG=C.UTF-8",
        "TERM=xterm",
        "id",
        "-u",
    ]


def test_user_command_is_never_shell_text():
    argv = inside.enter_argv(77, ["echo", "$(reboot); x"], user="researcher", term="dumb")
    assert argv[-7:] == ["researcher", "--session-command", 'exec "$@"', "--", "sh", "echo", "$(reboot); x"]


ALONE = RunningMachine(instance="i-1", leader=5, role="", node="")
HEAD = RunningMachine(instance="i-2", leader=6, role="head", node="burst-head")
NODE = RunningMachine(instance="i-3", leader=7, role="node", node="h200-1a-1")


def test_machine_is_found_by_id_and_slurm_name():
    asked = ("i-1", "", "head", "h200-1a-1", "i-2")
    assert [[r.answers_to(word) for word in asked] for r in (ALONE, HEAD, NODE)] == [
        [True, False, False, False, False],
        [False, False, True, False, True],
        [False, False, False, True, False],
    ]


def test_heads_are_found_by_the_names_that_remedies_print():
    """Regression: the remedy of a fault on the standby named a machine that `sandbox exec` did not know."""
    standby = RunningMachine(
        instance="i-4", leader=8, role="standby", node="", name=names.standby_name("burst")
    )
    asked = ("standby", names.standby_name("burst"), names.standby_name("other"), "burst-head")
    assert [standby.answers_to(word) for word in asked] == [True, True, False, False]


def test_wheels_are_requested_with_hashes_for_the_python_of_the_image():
    argv = shipment.download_argv(Path("/r/node.txt"), Path("/c"), python="3.13")
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:", "--python-version=3.13"} <= set(argv)


def test_playbooks_get_every_path_from_names():
    found = json.loads(
        bootstrap.variables(
            wheels_archive=Path("/w.tar"), code_archive=Path("/c.tar"), our_wheel="/o.whl", code_digest="d"
        )
    )
    assert (found["venv"], found["endpoint_file"]) == (names.VENV, names.ENDPOINT_FILE)
    owned = {folder["path"]: (folder["owner"], folder["mode"]) for folder in found["folders"]}
    assert owned[names.SPOOL] == ("slurm", "0700")
    assert owned[names.STATE_DIR] == ("root", "0755")


def test_code_archive_has_the_hooks_under_all_names(tmp_path):
    found = shipment.sources()
    held = {a.path: a.mode for a in shipment.ours(found)}
    for hook in ("resume", "suspend", "resume_fail", "prolog_slurmctld", "prolog", "gpucluster"):
        assert held[f"{names.HOOK_DIR}/{hook}".lstrip("/")] == 0o755
    assert held["etc/systemd/system/gpucluster-agent.service"] == 0o644
    assert not any(path.endswith("README") for path in held)
