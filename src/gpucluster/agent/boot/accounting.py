"""The head's accounting: MariaDB, slurmdbd, and the accounts of the plan in it.

A cluster runs on while accounting is away: slurmctld keeps the records and the limits that it knows. So a failure here is
reported in the head's status and tried again, and stops no other step. Only the first start of slurmctld with accounting
needs slurmdbd: without its list of resources slurmctld ends (24.11.5).
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from gpucluster.agent.boot import boot_state, bundles, systemd
from gpucluster.agent.boot.boot_state import BootState, Bundle, require
from gpucluster.agent.boot.runner import one_line
from gpucluster.agent.machine import Machine, NotYetError, StepError
from gpucluster.errors import GpuclusterError
from gpucluster.json_text import parse_json
from gpucluster.plan import codec, names
from gpucluster.plan.model import Accounting, ExternalDatabase, LocalDatabase
from gpucluster.shell import Result
from gpucluster.slurm import client, parse
from gpucluster.slurm.accounts import apply as accounts
from gpucluster.slurm.parse import SlurmAnswerError

DATABASE, SLURMDBD, CONTROLLER = "mariadb", "slurmdbd", "slurmctld"
SLURM_USER, MARIADB_USER = "slurm", "mysql"
LISTEN_S = 30.0  # slurmdbd makes or converts its tables before it listens; the step is then tried again
PAUSE_S = 0.2
COPY_S = 1800.0
SACCTMGR_S = 120.0
ASK_S, LOG_IN_S = 20.0, 10.0
MOST_WAITING = 100  # records in slurmctld's queue; a busy cluster has some
LEAST_FREE_MIB = 64  # on a full disk MariaDB refuses new rows
KNOWN_TRES = "/var/spool/slurmctld/last_tres"  # slurmctld writes it every 300 s, and when it ends (S36)
INCOMING = ".incoming"
CONF = f"{names.SLURM_DIR}/slurm.conf"
LOGS = "/var/log/slurm"
SETUP = (
    f"CREATE DATABASE IF NOT EXISTS {names.DATABASE};\n"
    f"CREATE USER IF NOT EXISTS '{names.DATABASE_USER}'@'localhost' IDENTIFIED VIA unix_socket;\n"
    f"GRANT ALL ON {names.DATABASE}.* TO '{names.DATABASE_USER}'@'localhost';\n"
)
_INCOMPATIBLE = "Incompatible versions"
_SMALL_QUESTION = ("sacctmgr", "--noheader", "show", "cluster")  # its answer needs the database

log = logging.getLogger(__name__)


def run_slurmdbd(machine: Machine, state: BootState) -> BootState:
    """Run slurmdbd and its database, if the plan has accounting. An error is raised only before slurmctld's first start with it."""
    bundle = require(state.bundle)
    accounting = bundle.plan.slurm.accounting
    if accounting is None:
        if machine.path(names.SLURMDBD_CONF).exists():
            _stop(machine, (SLURMDBD, DATABASE))
            machine.path(names.SLURMDBD_CONF).unlink()
        return replace(state, accounting="")
    try:
        _run(machine, state, bundle, accounting)
    except (GpuclusterError, OSError) as error:
        if not _goes_on(machine):
            raise
        log.warning("accounting is away: %s", one_line(error))
        return replace(state, accounting=f"accounting is away, jobs go on: {one_line(error)}")
    return replace(state, accounting="")


def _goes_on(machine: Machine) -> bool:
    """Return whether slurmctld needs no slurmdbd: it has saved the list of resources, or has started with accounting and runs."""
    if machine.path(KNOWN_TRES).exists():
        return True
    good = bundles.stored(machine, boot_state.load(machine).good)
    return good is not None and good.plan.slurm.accounting is not None and systemd.active(machine, CONTROLLER)


def apply_accounts(machine: Machine, state: BootState) -> BootState:
    """Bring the plan's accounts and QOS to slurmdbd after each change of them, and at the start of a month."""
    plan = require(state.bundle).plan
    accounting = plan.slurm.accounting
    if accounting is None or not accounting.enforced or state.accounting:
        return state
    wanted = digest(accounting, accounts.month_of(machine.clock()))
    if boot_state.load(machine).accounts_digest == wanted:
        return state

    run = _sacctmgr(machine, require(state.bundle), SACCTMGR_S)
    try:
        found = accounts.compare(run, accounting, plan.name, machine.clock())
        accounts.apply(run, found.changes)
    except (GpuclusterError, OSError) as error:
        log.warning("the accounts are not applied: %s", one_line(error))
        return replace(state, accounting=f"the accounts are not applied: {one_line(error)}")
    if found.conflicts:
        return replace(state, accounting=f"the accounts are applied in part: {found.conflicts[0]}")
    boot_state.update(machine, accounts_digest=wanted)
    return state


def _sacctmgr(machine: Machine, bundle: Bundle, timeout_s: float) -> accounts.Run:
    """Run sacctmgr with the bundle's slurm.conf: at the first boot /etc/slurm has none yet."""
    env = {"SLURM_CONF": str(bundle.tree / CONF)}

    def run(argv: Sequence[str]) -> Result:
        return machine.run(argv, check=False, timeout_s=timeout_s, env=env)

    return run


def digest(accounting: Accounting, month: str) -> str:
    """Return a digest of what the accounts depend on."""
    text = codec.dumps(accounting) + (month if any(one.gpu_hours_per_month for one in accounting.qos) else "")
    return hashlib.sha256(text.encode()).hexdigest()


def credentials(value: bytes | None) -> tuple[str, str]:
    """Return user and password of the secret of an existing database. StepError has no part of the secret."""
    if value is None:
        raise NotYetError("the secret of the database has no value yet")
    try:
        found: Any = parse_json(value)
    except ValueError:
        raise StepError("the secret of the database is not JSON with `username` and `password`") from None
    fields = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    user, password = fields.get("username"), fields.get("password")
    for word in (user, password):
        if not isinstance(word, str) or not word:
            raise StepError("the secret of the database has no `username` or no `password`")
        if "#" in word or not word.isprintable() or any(c.isspace() for c in word):
            raise StepError(
                "the secret of the database has a '#' or a blank, which slurmdbd.conf cannot hold"
            )
    return str(user), str(password)


def run_backup(machine: Machine, state: BootState) -> BootState:
    """Run slurmdbd on the standby: it waits, and serves while that of the head does not answer (DbdBackupHost).

    A failure stops no other step: the standby's slurmctld keeps its records until a slurmdbd answers.
    """
    bundle = require(state.bundle)
    accounting = bundle.plan.slurm.accounting
    if accounting is None or isinstance(accounting.database, LocalDatabase):
        return state
    try:
        _start(machine, bundle, _text(machine, state, bundle, accounting.database))
    except (GpuclusterError, OSError) as error:
        log.warning("the backup of slurmdbd does not run: %s", one_line(error))
    return state


def _run(machine: Machine, state: BootState, bundle: Bundle, accounting: Accounting) -> None:
    data = None
    if isinstance(accounting.database, LocalDatabase):
        data = _run_database(machine, bundle)
        text = (bundle.tree / names.SLURMDBD_FILE).read_text()
    else:
        _stop(machine, (DATABASE,))
        text = _text(machine, state, bundle, accounting.database)
    if not _start(machine, bundle, text):
        answer = _sacctmgr(machine, bundle, ASK_S)(_SMALL_QUESTION)
        if not _restart_older(machine, state, answer) and bundles.applied(machine) == bundle.digest:
            if data is not None:
                _check_room(machine, data)
            _check_work(machine, bundle, answer)
            return
    end = machine.now() + LISTEN_S
    while not machine.listening(require(state.identity).address, names.SLURMDBD_PORT):
        if machine.now() >= end:
            raise NotYetError(f"slurmdbd does not listen: {systemd.last_log_lines(machine, SLURMDBD)}")
        machine.pause(PAUSE_S)
    accounts.add_missing_qos(_sacctmgr(machine, bundle, SACCTMGR_S), accounting, bundle.plan.name)


def _text(machine: Machine, state: BootState, bundle: Bundle, database: ExternalDatabase) -> str:
    """Return slurmdbd.conf with the account of an existing database."""
    services = machine.services(require(state.identity).region)
    user, password = credentials(services.get_secret(database.secret))
    text = (bundle.tree / names.SLURMDBD_FILE).read_text() + f"StorageUser={user}\nStoragePass={password}\n"
    if machine.read(names.SLURMDBD_CONF) != text or not systemd.active(machine, SLURMDBD):
        _log_in(machine, database, user, password)
    return text


def _log_in(machine: Machine, database: ExternalDatabase, user: str, password: str) -> None:
    """Log in as slurmdbd will, and check the certificate, which slurmdbd itself does not (24.11.5, 26.05.5).

    So a wrong password, name or certificate is reported in the server's own words. The password is on standard input only.
    """
    quoted = password.replace("\\", "\\\\")
    options = (
        f"[client]\nhost={database.host}\nport={database.port}\nuser={user}\npassword='{quoted}'\n"
        f"ssl-ca={database.ca}\nssl-verify-server-cert\nconnect-timeout={LOG_IN_S:.0f}\n"
    )
    argv = ["mariadb", "--defaults-file=/proc/self/fd/0", "--batch", "--execute", "SELECT 1", names.DATABASE]
    found = machine.run(argv, stdin=options, check=False, timeout_s=2 * LOG_IN_S)
    if found.code:
        words = found.stderr.strip() or f"mariadb ended with code {found.code}"
        raise NotYetError(f"the database at {database.host}:{database.port}: {words}")


def _start(machine: Machine, bundle: Bundle, text: str) -> bool:
    """Run slurmdbd with this text of slurmdbd.conf. Return whether it was started."""
    machine.make_folder(value_of(text, "ArchiveDir"), mode=0o700, owner=SLURM_USER)
    machine.make_folder(LOGS, mode=0o755, owner=SLURM_USER)
    changed = machine.write(names.SLURMDBD_CONF, text, mode=0o600, owner=SLURM_USER)
    if not changed and systemd.active(machine, SLURMDBD):
        return False
    systemd.ensure(machine, SLURMDBD, restart=changed)
    return True


def _restart_older(machine: Machine, state: BootState, answer: Result) -> bool:
    """Restart a slurmdbd that is older than the installed programs. Return whether it was.

    It refuses a newer slurmctld and newer clients (S45). One that does not listen may convert its tables, and runs on.
    """
    refused = answer.code != 0 and _INCOMPATIBLE in answer.stdout + answer.stderr
    if not refused or not machine.listening(require(state.identity).address, names.SLURMDBD_PORT):
        return False
    log.warning("slurmdbd is older than the installed programs: it is restarted")
    systemd.ensure(machine, SLURMDBD, restart=True)
    return True


def _check_work(machine: Machine, bundle: Bundle, answer: Result) -> None:
    """NotYetError if a running slurmdbd does not do its work: it goes on without its database, and logs it only.

    With a full disk it still answers, and slurmctld keeps the records (24.11.5: `The table 'lab_job_table' is full`).
    """
    if answer.code:
        raise NotYetError(f"slurmdbd does not answer: {systemd.last_log_lines(machine, SLURMDBD)}")
    env = {"SLURM_CONF": str(bundle.tree / CONF)}
    statistics = machine.run(client.STATISTICS, check=False, timeout_s=ASK_S, env=env)
    try:
        waiting = parse.parse_waiting_records(statistics.stdout)
    except SlurmAnswerError:
        return  # slurmctld does not answer, so nobody knows how many wait
    if waiting >= MOST_WAITING:
        lines = systemd.last_log_lines(machine, SLURMDBD)
        raise NotYetError(f"{waiting} records wait in slurmctld for slurmdbd: {lines}")


def _check_room(machine: Machine, folder: str) -> None:
    """NotYetError before the disk of the database is full."""
    disk = os.statvfs(machine.path(folder))
    free_mib = disk.f_bavail * disk.f_frsize >> 20
    if free_mib < LEAST_FREE_MIB:
        raise NotYetError(f"the disk of {folder} has {free_mib} MiB left: the database takes no more records")


def _run_database(machine: Machine, bundle: Bundle) -> str:
    """Run MariaDB with its data on the storage that survives the head, and slurmdbd's database in it. Return the data's folder."""
    text = (bundle.tree / names.MARIADB_FILE).read_text()
    _prepare_data(machine, value_of(text, "datadir"))
    changed = machine.write(names.MARIADB_CONF, text)
    if changed or not systemd.active(machine, DATABASE):
        systemd.ensure(machine, DATABASE, restart=changed)
    if not systemd.active(machine, SLURMDBD):
        machine.run(["mariadb", "--batch"], stdin=SETUP)
    return value_of(text, "datadir")


def _prepare_data(machine: Machine, folder: str) -> None:
    """Make the folder of the data. Data of the root disk are copied, when a volume for the state was added later.

    The folder gets its name after the copy or the first tables are complete, so a kill leaves only INCOMING.
    """
    target, first = machine.path(folder), machine.path(names.MARIADB_DATA)
    if (target / "mysql").is_dir():
        return
    _stop(machine, (SLURMDBD, DATABASE))
    incoming = target.with_name(target.name + INCOMING)
    shutil.rmtree(incoming, ignore_errors=True)
    if target != first and (first / names.DATABASE).is_dir():
        machine.run(["cp", "--archive", str(first), str(incoming)], timeout_s=COPY_S)
    else:
        incoming.mkdir(parents=True)
        machine.run(
            ["mariadb-install-db", f"--user={MARIADB_USER}", f"--datadir={incoming}", "--skip-test-db"],
            timeout_s=COPY_S,
        )
    machine.run(["chown", "--recursive", f"{MARIADB_USER}:{MARIADB_USER}", str(incoming)], timeout_s=COPY_S)
    machine.run(["sync", "--file-system", str(incoming)], timeout_s=COPY_S)
    if target.is_dir():
        target.rmdir()  # an empty folder; OSError for anything else
    incoming.rename(target)


def _stop(machine: Machine, units: Sequence[str]) -> None:
    for unit in units:
        if systemd.active(machine, unit):
            machine.run(["systemctl", "stop", f"{unit}.service"], timeout_s=COPY_S)


def value_of(text: str, key: str) -> str:
    """Return the value of a `key=value` line."""
    return next(line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}="))
