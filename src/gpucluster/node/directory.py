"""People from LDAP: sssd on every machine. The bind password comes from its secret with the machine's role.

The secret is `PASSWORD`, or `{"bind_dn": ..., "password": ...}`. It stands in sssd's file (0600), in no argument and no log.
"""

import json
from collections.abc import Mapping

from gpucluster.node import systemd
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine, NotYetError, StepError
from gpucluster.plan.model import Directory

FILE, NAMES = "/etc/sssd/sssd.conf", "/etc/nsswitch.conf"
DATABASES = ("passwd", "group", "shadow")


def joined(machine: Machine, known: Known) -> Known:
    """sssd runs with the plan's directory, if it has one."""
    directory = of(known.bundle).plan.directory
    if directory is None:
        return known
    changed = machine.write(FILE, text(directory, _bind(machine, known, directory)), mode=0o600)
    if machine.write(NAMES, with_sss(machine.read(NAMES))):
        machine.run(["pam-auth-update", "--package", "--enable", "sss", "mkhomedir"])
    systemd.ensure(machine, "sssd", restart=changed)
    return known


def text(directory: Directory, bind: Mapping[str, str]) -> str:
    """sssd.conf. An answer is trusted only if the server's certificate is."""
    lines = [
        "[sssd]", "services = nss, pam, ssh", "domains = directory", "",
        "[domain/directory]", "id_provider = ldap", "auth_provider = ldap", "access_provider = permit",
        f"ldap_uri = {directory.uri}", f"ldap_search_base = {directory.base}", "ldap_tls_reqcert = demand",
        "ldap_id_use_start_tls = " + ("false" if directory.uri.startswith("ldaps://") else "true"),
        "ldap_user_ssh_public_key = sshPublicKey", "cache_credentials = true", "enumerate = false",
        "override_homedir = /home/%u", "override_shell = /bin/bash", "min_id = 1000",
    ]  # fmt: skip
    if bind.get("bind_dn"):
        lines.append(f"ldap_default_bind_dn = {bind['bind_dn']}")
    if bind.get("password"):
        lines += ["ldap_default_authtok_type = password", f"ldap_default_authtok = {bind['password']}"]
    return "".join(f"{line}\n" for line in lines)


def with_sss(switch: str) -> str:
    """nsswitch.conf with `sss` after the files, once."""
    return "".join(f"{_with(line)}\n" for line in switch.splitlines())


def _with(line: str) -> str:
    name, colon, sources = line.partition(":")
    if not colon or name.strip() not in DATABASES or "sss" in sources.split():
        return line
    return f"{line.rstrip()} sss"


def _bind(machine: Machine, known: Known, directory: Directory) -> Mapping[str, str]:
    if directory.secret is None:
        return {}
    value = machine.store(of(known.identity).region).secret(directory.secret)
    if value is None:
        raise NotYetError("the directory's secret has no value yet")
    said = value.decode(errors="replace").strip()
    if any(not c.isprintable() for c in said.replace("\n", "") if not said.startswith("{")):
        raise StepError("the directory's secret is no line of text")
    try:
        found = json.loads(said) if said.startswith("{") else {"password": said}
    except ValueError as error:
        raise StepError("the directory's secret is neither a password nor JSON") from error
    fields = {str(k): str(v) for k, v in found.items() if k in ("bind_dn", "password")}
    if any("\n" in value or "\r" in value for value in fields.values()) or not fields.get("password"):
        raise StepError("the directory's secret has no `password` of one line")
    return fields
