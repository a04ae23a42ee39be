"""The head of RealSlurm with its whole agent: the steps of an existing head from the bundle to the accounts, on real daemons.

head = WholeHead(slurm)
assert head.apply(plan) == ""    # or why not
"""

from typing import cast

from accounting import HeadMachine, Secrets
from real_slurm import RealSlurm, adapted

from gpucluster import artifacts
from gpucluster.agent.boot import accounting, cluster_identity, held_bundle, slurmctld
from gpucluster.agent.boot.boot_state import BootState, Identity
from gpucluster.agent.boot.runner import StepFailedError, StepTable, one_line, run_steps
from gpucluster.agent.machine import Services
from gpucluster.agent.services import FolderServices
from gpucluster.artifacts import Artifact
from gpucluster.plan import codec, names
from gpucluster.plan.model import SlurmPlan
from gpucluster.slurm.config.render import render

TABLE: StepTable = (
    ("bundle", slurmctld.fetch_bundle),
    ("slurm", slurmctld.check_config),
    ("cluster", cluster_identity.check),
    ("hold", held_bundle.hold),
    ("accounting", accounting.run_slurmdbd),
    ("controller", slurmctld.apply_bundle),
    ("held", held_bundle.clear),
    ("ready", slurmctld.wait_for_controller),
    ("accounts", accounting.apply_accounts),
)
LIMIT_S = 100.0


class _Services(FolderServices):
    """The bundle is in a folder, and the secret of the site's database in this object."""

    def __init__(self, secrets: Secrets) -> None:
        self.get_secret = secrets.get_secret  # type: ignore[method-assign]


class WholeHead(HeadMachine):
    """`secret`: of an existing database."""

    DAEMONS = {  # noqa: RUF012  a table
        **HeadMachine.DAEMONS,
        "mariadb.service": ("/usr/sbin/mariadbd", "--user=mysql"),
        "slurmctld.service": ("/usr/sbin/slurmctld", "-D"),
    }

    def __init__(self, slurm: RealSlurm, secret: bytes = b"") -> None:
        super().__init__(slurm, secret)
        self.services = cast("Services", _Services(self.secrets))
        slurm.start_munge()
        slurm.folder("/run/mysqld", "mysql")

    def bring(self, plan: SlurmPlan) -> None:
        """Write the bundle as Ansible brings it, with what the laboratory changes for its slurmds."""
        files = {a.path: a.content for a in render(plan)}
        own = {p.removeprefix("slurm/"): t.decode() for p, t in files.items() if p.startswith("slurm/")}
        changed = {f"slurm/{p}": t.encode() for p, t in adapted(own, nodes=True).items()}
        members = [Artifact(path, content) for path, content in sorted({**files, **changed}.items())]
        folder = self.slurm.path(names.SITE_DIR)
        folder.mkdir(parents=True, exist_ok=True)
        plan_file = Artifact(names.PLAN_FILE, codec.dumps(plan).encode())
        (folder / names.BUNDLE_KEY).write_bytes(artifacts.pack([plan_file, *members]))

    def apply(self, plan: SlurmPlan) -> str:
        """Apply the bundle of this plan; return an empty text, or what keeps the agent from it."""
        self.bring(plan)
        machine = self.machine()
        me = Identity(
            instance_id=plan.head.name, address=plan.head.address, cluster=plan.name, region="",
            bucket=str(self.slurm.path(names.SITE_DIR)), key=names.BUNDLE_KEY, role=names.ROLE_HEAD,
        )  # fmt: skip
        try:
            end = machine.now() + LIMIT_S
            state = run_steps(machine, TABLE, BootState(identity=me), until=lambda _: end)
        except StepFailedError as failure:
            return failure.state.refused or one_line(failure)
        return state.refused or state.held or state.accounting

    def restart(self) -> str:
        """Restart slurmctld as a boot does; return an empty text, or its last words."""
        machine = self.machine()
        machine.run(["systemctl", "stop", "slurmctld.service"], check=False)
        self._systemctl("start", "slurmctld.service")
        process = self.units["slurmctld.service"]

        def decided() -> bool:
            return process.poll() is not None or self.slurm.run("scontrol", "ping").out.count(" is UP") > 0

        self.slurm.wait(decided, "slurmctld answers or ends")
        return "" if process.poll() is None else self.words()

    def words(self) -> str:
        """The fatal lines of slurmctld's last start."""
        told = self.slurm.log("slurmctld.out").splitlines()
        return "; ".join(line.partition("fatal: ")[2] for line in told if "fatal: " in line)
