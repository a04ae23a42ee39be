"""A cause is named once, and what fails for it is unknown; what passes although the cause is there stays a pass."""

import io
from typing import Any

import pytest
from support import builders
from support.standing_cluster import StandingCluster

from gpucluster.cli.validate_table import final
from gpucluster.validate import expectations
from gpucluster.validate.expect import select
from gpucluster.validate.results import Run, find, unhealthy
from gpucluster.validate.run import run
from gpucluster.validate.session import RunContext

UNIT = "NRestarts=0\nId={}.service\nLoadState=loaded\nActiveState={}\nUnitFileState=enabled\n"


def lab(**answers) -> StandingCluster:
    plan = builders.a_lab_plan()
    return StandingCluster(
        plan, up=[node for pool in plan.pools for node, _ in pool.hosts()], answers=answers
    )


def ran(cluster: Any, tier: int = 0) -> Run:
    context = RunContext(plan=cluster.plan, user="vision")
    return run(context, cluster, select(expectations(cluster.plan), tier=tier))


def bad(done: Run) -> dict[str, tuple[str, str]]:
    return {r.id: (r.verdict.value, r.blocked_by) for r in unhealthy(done.results)}


def disks(cluster: StandingCluster, machine: str, full: str) -> str:
    want = next(e.want for e in expectations(cluster.plan) if e.id == f"disk[{machine}]")
    return "".join(f" {100 if path == full else 9}% 9% {path}\n" for path in ("", *want.paths))


def dead(cluster: StandingCluster, machine: str, *units: str) -> str:
    want = next(e.want for e in expectations(cluster.plan) if e.id == f"svc.active[{machine}]")
    every = (unit.removesuffix(".service") for unit in want.units)
    return "\n".join(UNIT.format(unit, "failed" if unit in units else "active") for unit in every)


@pytest.mark.parametrize("path", ["/run", "/var/lib", "/var/spool/slurmd"])
def test_full_file_system_is_the_one_failure_and_what_rests_on_it_is_unknown(path):
    """V9: munge and slurmd were dead because /run was full, and their own remedies could not start them."""
    cluster = lab()
    cluster.answers["gpu01: df --output=pcent,ipcent,file"] = disks(cluster, "gpu01", path)
    cluster.answers["gpu01: systemctl show --property=Id"] = dead(cluster, "gpu01", "munge", "slurmd")
    done = ran(cluster)
    found = bad(done)
    assert found.pop("disk[gpu01]") == ("fail", "")
    assert found["svc.active[gpu01]"] == ("unknown", "disk[gpu01]")
    assert set(found.values()) == {("unknown", "disk[gpu01]")}
    assert all("[gpu01]" in ident for ident in found)
    assert f"unknown: {len(found)} more, until disk[gpu01] is repaired" in final(done, io.StringIO())
    hidden = find(done.results, "svc.active[gpu01]")
    assert hidden is not None
    assert hidden.found == "munge failed, slurmd failed; blocked by disk[gpu01]"


def test_what_passes_on_a_full_file_system_stays_a_pass():
    cluster = lab()
    cluster.answers["head: df --output=pcent,ipcent,file"] = disks(cluster, "head", "/tmp")
    assert bad(ran(cluster)) == {"disk[head]": ("fail", "")}


def test_full_file_system_explains_no_fault_of_another_kind():
    cluster = lab()
    cluster.answers["gpu01: df --output=pcent,ipcent,file"] = disks(cluster, "gpu01", "/run")
    cluster.answers["gpu01: find /dev"] = "character special file:/dev/nvidia0\n"
    cluster.answers["gpu02: systemctl show --property=Id"] = dead(cluster, "gpu02", "munge")
    found = bad(ran(cluster))
    assert found["gpu.count[gpu01]"] == found["disk[gpu01]"] == found["svc.active[gpu02]"] == ("fail", "")


def test_read_only_file_system_is_the_cause_of_a_dead_service():
    cluster = lab()
    table = cluster.mounts("head", None)  # type: ignore[arg-type]
    cluster.answers["head: cat /proc/self/mountinfo"] = f"{table}99 1 0:7 / /var/lib ro - ext4 /dev/vdb ro\n"
    cluster.answers["head: systemctl show --property=Id"] = dead(cluster, "head", "slurmctld")
    cluster.answers["head: scontrol"] = (1, "Unable to contact slurm controller")
    found = bad(ran(cluster))
    assert found.pop("fs.mount[head]") == ("fail", "")
    assert {"svc.active[head]", "ctl.ping[head]", "nodes.state[head]"} <= found.keys()
    assert set(found.values()) == {("unknown", "fs.mount[head]")}


def test_clock_is_the_cause_of_credentials_that_munge_refuses():
    cluster = lab()
    cluster.answers["gpu01: date --utc"] = "1700000999.5"
    cluster.answers["gpu01: unmunge"] = (15, "STATUS:          Expired credential (15)\n")
    found = bad(ran(cluster))
    assert found.pop("clock.sync[gpu01]") == ("fail", "")
    assert found["auth.rt[gpu01]"] == ("unknown", "clock.sync[gpu01]")
    assert set(found.values()) == {("unknown", "clock.sync[gpu01]")}


def closed(port: int) -> str:
    return f"to 192.0.2.10 {port} 124 \nlistens {port} 0 64\naddress 192.0.2.11\n--\n"


def test_closed_port_of_the_head_is_the_cause_of_a_slurmctld_that_does_not_answer():
    """V9: the remedy was to start slurmctld again, which was well."""
    cluster = lab(
        **{"head: 192.0.2.10 6817": closed(6817), "head: scontrol": (1, "Unable to contact slurm controller")}
    )
    found = bad(ran(cluster))
    assert found.pop("net.ports[head]") == ("fail", "")
    assert {"ctl.ping[head]", "nodes.state[head]"} <= found.keys()
    assert set(found.values()) == {("unknown", "net.ports[head]")}


def test_closed_port_of_a_node_is_the_cause_of_a_slurmd_that_does_not_answer():
    answer = "from 192.0.2.11 6818 124 \nlistens 6817 0 64\n--\n"
    cluster = lab(**{"head: 6818 6817": answer, "gpu01: scontrol show slurmd": (124, "")})
    found = bad(ran(cluster))
    assert found["net.ports[gpu01]"] == ("fail", "")
    assert found["slurmd.ping[gpu01]"] == ("unknown", "net.ports[gpu01]")


def test_broken_dns_is_the_cause_of_a_secret_that_cannot_be_read():
    cluster = StandingCluster(builders.a_plan())
    cluster.answers["head: getent ahostsv4"] = (
        "burst-head 0 10.42.0.10\ns3.us-east-2.amazonaws.com 2 \nhosts: files dns\n"
    )
    cluster.answers["head: elastic.inspect.status"] = (1, "Could not connect to the endpoint URL")
    found = bad(ran(cluster))
    assert found["net.resolve[head]"] == ("fail", "")
    assert found["elastic.scales[head]"] == ("unknown", "net.resolve[head]")
