"""What `import` says of QOS is what slurmdbd has of the same dump, and what slurmctld gives a job without --qos."""

import re
from collections.abc import Iterator

import pytest
from accounting import with_accounting
from real_slurm import VERSIONS, RealSlurm
from support.account_rows import SITE
from support.builders import on_hosts

from gpucluster import catalog
from gpucluster.importer.associations import Associations, read_associations
from gpucluster.importer.site import Site
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text

DUMP = """\
Cluster - 'lab':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'top':QOS='normal,high'
Parent - 'top'
Account - 'as-above'
Account - 'plus':QOS='+scav'
Account - 'minus':QOS='-high'
Account - 'both':QOS='-high,+scav'
Account - 'one':QOS='scav'
Account - 'first':DefaultQOS='high'
Account - 'none':QOS='high,scav'
Account - 'minus-first':DefaultQOS='high':QOS='-high'
Parent - 'first'
Account - 'first-minus':QOS='-high'
Account - 'first-one':QOS='scav'
Account - 'first-plus':QOS='+scav'
Parent - 'plus'
Account - 'plus-minus':QOS='-high'
Parent - 'one'
Account - 'one-plus':QOS='+high'
"""
OF_USERS = {"plus": "+scav", "minus": "-high", "other": "scav", "whole": "normal,high", "same": "+high", "both": "-normal,+scav"}  # fmt: skip
FLAGS = "DenyOnLimit,EnforceUsageThreshold,PartitionMinNodes,PartitionMaxNodes,PartitionTimeLimit,RequiresReservation,OverPartQOS,NoReserve,NoDecay"
GPUS = 32  # of the plan
_OF_USER = re.compile(
    r"the user (\S+) in (\S+): QOS=\S+ is not imported: users of a spec have .* (also|not) (\S+(?:, \S+)*)"
)
_FLAG = re.compile(r"the QOS (\S+): Flags=(\S+) is not imported: .+")
_NO_DEFAULT = re.compile(
    r"the account (\S+): (?:a job without --qos has \S+, and Slurm refuses it"
    r"|DefaultQOS=\S+ is not imported: it is none of the QOS of the account)"
)


def _accounts() -> list[str]:
    return re.findall(r"Account - '([^']+)'", DUMP)


def _users() -> Iterator[tuple[str, str, str]]:
    """User, account and QOS: one without a QOS of its own in each account, and some of two accounts."""
    for account in _accounts():
        yield f"u-{account}", account, ""
    for account in ("as-above", "plus-minus"):
        for name, qos in OF_USERS.items():
            yield f"{name}-{account}", account, qos


def _dump() -> str:
    lines = [DUMP]
    for user, account, qos in _users():
        own = f":QOS='{qos}'" if qos else ""
        lines.append(f"Parent - '{account}'\nUser - '{user}':DefaultAccount='{account}'{own}\n")
    return "".join(lines)


def _load(slurm: RealSlurm) -> str:
    """Give slurmdbd the QOS and the tree; return what it dumps."""
    for words in (
        "high priority=5 grptres=cpu=64,gres/gpu=4 maxtresperuser=cpu=8",
        "scav priority=1 flags=Relative grptres=gres/gpu=50 preempt=normal,high gracetime=60",
        f"flagged flags={FLAGS}",
    ):
        slurm.must("sacctmgr", "--immediate", "add", "qos", *words.split())
    slurm.write("/tmp/in.dump", _dump())
    slurm.must("sacctmgr", "--immediate", "load", "file=/tmp/in.dump")
    slurm.must("sacctmgr", "dump", "lab", "file=/tmp/out.dump")
    return slurm.path("/tmp/out.dump").read_text()


def _shown(slurm: RealSlurm) -> dict[tuple[str, str], set[str]]:
    """The QOS of each account (user: empty) and of each user in it, as slurmdbd has them with those from above."""
    text = slurm.must("sacctmgr", "-nP", "show", "assoc", "format=account,user,qos")
    rows = [line.split("|") for line in text.splitlines()]
    return {(account, user): set(qos.split(",")) for account, user, qos in rows if account != "root"}


def _said(found: Associations, site: Site) -> dict[tuple[str, str], set[str]]:
    """The same from our reader: a complaint says how the QOS of a user differ from those of the account."""
    made = {(name, ""): set(one.qos) for name, one in found.accounts.items()}
    made |= {(name, user): set(one.qos) for name, one in found.accounts.items() for user in one.users}
    for match in (_OF_USER.fullmatch(one.message) for one in site.complaints):
        if match:
            user, account, how, listed = match.groups()
            change = made[account, user].__isub__ if how == "also" else made[account, user].__ior__
            change(set(listed.split(", ")))
    return made


def _job_qos(slurm: RealSlurm, user: str) -> str:
    """The QOS of a job without --qos; empty: sbatch refuses it."""
    done = slurm.run(
        "sbatch", "--parsable", "--hold", "--output=/dev/null", "--time=5", "--wrap=true", user=user
    )
    assert (done.code == 0) is ("Invalid" not in done.err), done
    return "" if done.code else slurm.must("squeue", "-h", "-j", done.out.strip(), "-o", "%q").strip()


@pytest.mark.parametrize("version", VERSIONS)
def test_qos_of_an_imported_dump_are_those_of_slurmdbd(version: str) -> None:
    plan = on_hosts(resolve(inspect_text(SITE, "lab.yaml", catalog.load()).result(), catalog.load()))
    with with_accounting(version, plan, *(user for user, _, _ in _users()), nodes=False) as slurm:
        dumped, shown = _load(slurm), _shown(slurm)
        for text in (_dump(), dumped):
            site = Site()
            found = read_associations(site, "assoc.dump", text)
            assert _said(found, site) == shown
            refused = {m[1] for one in site.complaints if (m := _NO_DEFAULT.fullmatch(one.message))}
            jobs = {account: _job_qos(slurm, user) for user, account, qos in _users() if not qos}
            assert {name for name, qos in jobs.items() if not qos} == refused
            assert {name: qos for name, qos in jobs.items() if qos} == {
                name: one.qos[0] for name, one in found.accounts.items() if name not in refused
            }
        if version == "24.11":  # its dump has only the names of QOS
            return
        flags = {tuple(m.groups()) for one in site.complaints if (m := _FLAG.fullmatch(one.message))}
        assert flags == {("scav", "Relative"), *(("flagged", flag) for flag in FLAGS.split(","))}
        high, scav = found.defined["high"], found.defined["scav"]
        assert (high.priority, high.limits) == (5, {"gpus": 4, "cpus_per_user": 8})
        assert (scav.priority, set(scav.preempts), scav.limits) == (1, {"normal", "high"}, {})
        assert found.exemptions == ("GraceTime",)
        held = slurm.must("scontrol", "show", "assoc_mgr", "flags=qos", "qos=scav")
        assert f"gres/gpu={GPUS // 2}(0)" in held  # 50 is a percent
