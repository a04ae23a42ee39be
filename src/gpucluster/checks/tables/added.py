"""The checks of what root has added by hand: users, rights, programs and exports."""

from typing import Any

from gpucluster.checks import command_path, exports, root_rights, setuid
from gpucluster.checks.check import Check

ADDED: tuple[Check[Any, Any], ...] = (
    Check(
        id="users.root",
        tier=0,
        title="no user but root has its uid, and sudo has no rules by hand",
        query=root_rights.query_root,
        parse=root_rights.parse_root,
        evaluate=root_rights.evaluate_root,
        want=root_rights.RootWant,
        remedy="on {machine}: awk -F: '$3 == 0' /etc/passwd; ls -l /etc/sudoers.d",
    ),
    Check(
        id="files.setuid",
        tier=1,
        title="only programs of packages and the image run with more rights than their user",
        query=setuid.query_setuid,
        parse=setuid.parse_setuid,
        evaluate=setuid.evaluate_setuid,
        want=setuid.SetuidWant,
        remedy="on {machine}: find / -xdev -type f -perm /6000",
    ),
    Check(
        id="path.slurm",
        tier=0,
        title="no other program is before Slurm's commands in the path",
        query=command_path.query_commands,
        parse=command_path.parse_commands,
        evaluate=command_path.evaluate_commands,
        want=command_path.CommandsWant,
        remedy="on {machine}: type -a sbatch; ls -lt /usr/local/bin /usr/local/sbin /etc/profile.d",
        needs=("login.user", "users.acct:{user}"),
    ),
    Check(
        id="fs.exports",
        tier=0,
        title="the machine exports the plan's folders to the plan's clients only",
        query=exports.query_exports,
        parse=exports.parse_exports,
        evaluate=exports.evaluate_exports,
        want=exports.ExportsWant,
        remedy="on {machine}: exportfs -v; ls -l /etc/exports /etc/exports.d",
    ),
)
