"""What another name, and another or no accounting database, does to a running and a queued job: the agent on real daemons.

The head refuses some of these edits. Then the commands of `gpucluster diff` are typed, and the bundle is applied again.
GPUCLUSTER_RECORD=1 writes tests/recorded/identity-edits.json, from which `make golden` makes a part of docs/edits.md.
"""

import dataclasses
import json
import os
import shlex
from typing import Any

import pytest
from external_database import CA, CLIENT, HOST, PORT, ExternalDatabase
from real_slurm import VERSIONS, RealSlurm
from support.builders import a_lab_plan
from support.identity_edits import EDITS, RECORDED
from test_accounting import PEOPLE, _plan
from test_external_database import ARN
from whole_head import WholeHead

from gpucluster.agent.boot import boot_state
from gpucluster.gitops.identity import COPY, highest_id
from gpucluster.gitops.steps import COPY_DUMP
from gpucluster.plan.model import Accounting, SlurmLine, SlurmOnHosts
from gpucluster.plan.model import ExternalDatabase as Elsewhere
from gpucluster.plan.slurm_identity import CLUSTER_NAME

LOOKS = (
    40  # at an idle node beside a queued job with one of these reasons: some passes of the scheduler (2 s)
)
NEVER = ("InvalidAccount", "PartitionConfig")
SCRIPT = """#!/bin/sh
echo start >> /tmp/starts
until [ -e /tmp/stop ]; do sleep 0.2; done
"""
Seen = dict[str, Any]


def _with(plan: SlurmOnHosts, version: str, accounting: Accounting | None) -> SlurmOnHosts:
    return dataclasses.replace(
        plan, slurm=dataclasses.replace(plan.slurm, version=version, accounting=accounting)
    )


def _plans(edit: str, version: str) -> tuple[SlurmOnHosts, SlurmOnHosts]:
    site, lab = _plan(), a_lab_plan()
    known = site.slurm.accounting
    assert known is not None
    database = Elsewhere(host=HOST, port=PORT, secret=ARN, ca=CA)
    lines = dataclasses.replace(
        lab, slurm=dataclasses.replace(lab.slurm, lines=site.slurm.lines), times=site.times
    )
    bare, local = _with(lines, version, None), _with(site, version, known)
    alone = _with(lines, version, dataclasses.replace(known, qos=(), accounts=()))
    elsewhere = _with(site, version, dataclasses.replace(known, database=database))
    return {
        "renamed": (bare, dataclasses.replace(bare, name="labor")),
        "renamed, with accounting": (local, dataclasses.replace(local, name="labor")),
        "renamed, with accounting without accounts": (alone, dataclasses.replace(alone, name="labor")),
        "accounting added": (bare, local),
        "accounting added without accounts": (bare, alone),
        "accounting removed": (local, bare),
        "another database": (local, elsewhere),
        "another database with a copy": (local, elsewhere),
        "shorter keep": (local, _with(site, version, dataclasses.replace(known, keep_s=30 * 86400))),
    }[edit]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_meet_each_edit_as_recorded(version: str, edit: str) -> None:
    old, new = _plans(edit, version)
    with RealSlurm(version, old) as slurm:
        found = {"edit": edit, "version": version, **_observed(slurm, edit, old, new)}
    rows = json.loads(RECORDED.read_text()) if RECORDED.exists() else []
    if os.environ.get("GPUCLUSTER_RECORD"):
        others = [row for row in rows if (row["edit"], row["version"]) != (edit, version)]
        rows = sorted([*others, found], key=lambda row: (list(EDITS).index(row["edit"]), row["version"]))
        RECORDED.write_text(json.dumps(rows, indent=1) + "\n")
    assert found in rows


@pytest.mark.parametrize("text", ["", "|7\n"])
@pytest.mark.parametrize("version", VERSIONS)
def test_state_without_a_name_ends_slurmctld_and_the_agent_refuses_before(version: str, text: str) -> None:
    old, new = _plans("renamed", version)
    with RealSlurm(version, old) as slurm:
        head = WholeHead(slurm)
        assert head.apply(old) == ""
        slurm.path(CLUSTER_NAME).write_text(text)
        process = head.units["slurmctld.service"]
        assert head.apply(new).startswith(f"{CLUSTER_NAME} has no name")
        assert process.poll() is None, "nothing stops"
        assert head.restart() == "CLUSTER NAME MISMATCH."
        slurm.path(CLUSTER_NAME).unlink()
        assert head.restart() == ""


@pytest.mark.parametrize("version", VERSIONS)
def test_highest_job_id_of_the_database_is_asked_and_a_first_id_above_it_is_taken(version: str) -> None:
    """And a copy into a database with tables changes none of them."""
    old, new = _plans("accounting added without accounts", version)
    with RealSlurm(version, old) as slurm:
        head = WholeHead(slurm)

        def highest(name: str) -> str:
            asked = slurm.run("mariadb", "--skip-column-names", "--execute", highest_id(name))
            return asked.out.strip() or asked.err

        assert head.apply(new) == ""
        assert boot_state.load(head.machine()).clustername == slurm.path(CLUSTER_NAME).read_text().strip()
        assert highest("lab") == "NULL"
        assert "ERROR 1146" in highest("labor")
        job = slurm.must("sbatch", "--parsable", "--hold", "--wrap", "true").strip()
        slurm.wait(lambda: highest("lab") == job, "the record")
        slurm.must("mariadb", "--execute", "UPDATE slurm_acct_db.lab_job_table SET id_job = 5000")
        assert highest("lab") == "5000"
        assert f"NEXT_JOB_ID             = {int(job) + 1}\n" in slurm.must("scontrol", "show", "config")

        lines = (*new.slurm.lines, SlurmLine(file="slurm.conf", key="FirstJobId", value="5001"))
        first = dataclasses.replace(new, slurm=dataclasses.replace(new.slurm, lines=lines))
        assert head.apply(first) == ""
        assert "FirstJobId              = 5001\n" in slurm.must("scontrol", "show", "config")
        assert slurm.must("sbatch", "--parsable", "--hold", "--wrap", "true").strip() == "5001"

        copied = slurm.run("mariadb", stdin=slurm.must(*shlex.split(COPY_DUMP)))
        assert (copied.code, "already exists" in copied.err) == (1, True)
        slurm.wait(lambda: highest("lab") == "5001", "the table is as before, and takes the record")


def _observed(slurm: RealSlurm, edit: str, old: SlurmOnHosts, new: SlurmOnHosts) -> Seen:
    for uid, user in enumerate(PEOPLE, start=5001):
        slurm.must("useradd", "--uid", str(uid), "--no-create-home", user)
    site = ExternalDatabase(slurm) if "another" in edit else None
    if site is not None:
        site.start()
    head = WholeHead(slurm, b"" if site is None else site.secret())
    assert head.apply(old) == ""
    slurm.start_nodes("gpu01", fresh=False)  # a fresh one that registers after a restart counts as booted
    slurm.wait(lambda: _node(slurm) == "idle", "an idle node")
    ended = _submit(slurm, "#!/bin/sh\n")
    slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "the first job ends")
    runs = _submit(slurm, SCRIPT)
    slurm.wait(lambda: _state(slurm, runs).startswith("RUNNING"), "a job runs")
    waits = _submit(slurm, "#!/bin/sh\ntouch /tmp/ran\n")
    process = head.units["slurmctld.service"]

    told = head.apply(new)
    refused = next((word for word in ("CLUSTER NAME MISMATCH", "CLUSTER ID MISMATCH") if word in told), "")
    if refused:
        assert process.poll() is None, "nothing stops"
        assert slurm.path(CLUSTER_NAME).read_text().startswith("lab|")
        if edit == "another database with a copy":
            assert site is not None
            slurm.must(*CLIENT, stdin=slurm.must(*shlex.split(COPY_DUMP)))
        head.machine().run(["systemctl", "stop", "slurmctld.service"])
        slurm.must("sh", "-c", COPY)
        told = head.apply(new)
    seen: Seen = {"refused": refused, "told": told, "restart": head.restart()}
    seen["running"] = _state(slurm, runs)
    slurm.path("/tmp/stop").touch()
    seen["queued"] = _starts(slurm, waits)
    if seen["queued"] != "starts" and new.slurm.accounting is not None:
        slurm.run("scontrol", "update", f"jobid={waits}", "account=research", "qos=normal")
        seen["queued, with an account"] = _starts(slurm, waits)
    seen["starts"] = slurm.path("/tmp/starts").read_text().count("start")
    if new.slurm.accounting is not None:
        seen["history"] = "shown" if _recorded(slurm, ended) else "not shown"
        slurm.wait(lambda: _recorded(slurm, runs) != "RUNNING", "its record is not open")
        seen["record of the running job"] = _recorded(slurm, runs) or "none"
    return seen


def _submit(slurm: RealSlurm, script: str) -> str:
    options = ("-o", "/dev/null", "-t", "10", "-w", "gpu01", "--exclusive")
    return slurm.must("sbatch", "--parsable", *options, user="vision", stdin=script).strip()


def _state(slurm: RealSlurm, job: str) -> str:
    return slurm.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T (%r)").out.strip()


def _node(slurm: RealSlurm) -> str:
    return slurm.run("sinfo", "-h", "-n", "gpu01", "-o", "%t").out.strip()


def _starts(slurm: RealSlurm, job: str) -> str:
    """`starts`, or the state of a job that stays beside an idle node with a reason of NEVER."""
    looks: list[str] = []

    def decided() -> str:
        if slurm.path("/tmp/ran").exists():
            return "starts"
        looks.append(_state(slurm, job) if _node(slurm) == "idle" else "")
        last = looks[-LOOKS:]
        stays = len(last) == LOOKS and all(any(word in one for word in NEVER) for one in last)
        return last[-1] if stays else ""

    return slurm.wait(decided, "the queued job starts, or stays")


def _recorded(slurm: RealSlurm, job: str) -> str:
    return slurm.run("sacct", "-nPX", "-a", "-j", job, "-o", "state").out.strip()
