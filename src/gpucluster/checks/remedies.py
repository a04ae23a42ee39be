"""Steps that the remedies of several checks have: logs, and restarts of which a proof comes first. Pure.

A service that runs badly is worth more than one that does not start again, so a restart follows the proof that it can work.
"""

from collections.abc import Mapping, Sequence

from gpucluster.plan import names

LOG = "journalctl --no-pager -n 30 -u"  # and a unit
_PYTHON = f"{names.VENV}/bin/python -I"
AGENT_PROOF = f"{_PYTHON} -m gpucluster.agent prove-restart"
DATABASE_WRITES = "test $(mariadb --batch --skip-column-names --execute 'SELECT @@GLOBAL.read_only') = 0"
_PROOFS: Mapping[str, str] = {
    "munge": f"test -s {names.MUNGE_KEY}",
    "slurmctld": "scontrol show hostnames head >/dev/null",  # each command of Slurm reads slurm.conf whole, and ends at a mistake
    "ssh": "mkdir -p /run/sshd && sshd -t",  # without a running sshd the folder is missing
    "gpucluster-agent": AGENT_PROOF,  # it reads the munge key from the secret again
    "gpucluster-guard": "nft --check --file /etc/gpucluster/guard.nft",
    "gpucluster-elastic": f"{_PYTHON} -c 'import gpucluster.elastic.daemon'",
}


def _controller_answers(unit: str) -> str:
    """Both fetch slurm.conf when they start: from the first controller of their options that answers."""
    return (
        f"for at in $(sed -n 's/.*--conf-server \\([^\" ]*\\).*/\\1/p' {names.AGENT_RUN}/{unit}.env | tr , ' '); "
        'do timeout 5 bash -c ">/dev/tcp/${at%:*}/${at##*:}" && break; done'
    )


def proof_of(unit: str, *, with_database: bool = False) -> str:
    """The command that ends with 0 if the unit can start again; empty without one. `with_database`: MariaDB runs on the machine."""
    if unit in ("slurmd", "sackd"):
        return _controller_answers(unit)
    if unit == "slurmdbd":
        return DATABASE_WRITES if with_database else ""
    return _PROOFS.get(unit, "")


def restart(*units: str, verb: str = "restart", with_database: bool = False) -> str:
    """Restart units of systemd in this order, each after its proof."""
    return "; ".join(restart_after((), unit, verb=verb, with_database=with_database) for unit in units)


def restart_after(
    steps: Sequence[str], unit: str, *, verb: str = "restart", with_database: bool = False
) -> str:
    """The proof, then the steps that the restart needs, then the restart: what fails leaves the rest as it is."""
    proof = proof_of(unit, with_database=with_database)
    return " && ".join(filter(None, (proof, *steps, f"systemctl {verb} {unit}")))


AGENT = f"on {{machine}}: {restart('gpucluster-agent')}; {LOG} gpucluster-agent"
