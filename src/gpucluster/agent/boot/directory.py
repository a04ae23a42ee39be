"""Users from an LDAP directory: sssd on every machine. The machine's role reads the bind password from its secret.

The secret is `PASSWORD` or `{"bind_dn": ..., "password": ...}`. It is written to sssd.conf (0600), and to no argument or log.
"""

from collections.abc import Mapping

from gpucluster.agent.boot import systemd
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.machine import Machine, NotYetError, StepError
from gpucluster.json_text import parse_json
from gpucluster.plan.model import Directory

FILE, NAMES = "/etc/sssd/sssd.conf", "/etc/nsswitch.conf"
DATABASES = ("passwd", "group", "shadow")


def configure(machine: Machine, state: BootState) -> BootState:
    """Configure and start sssd, if the plan has a directory."""
    directory = require(state.bundle).plan.directory
    if directory is None:
        return state
    changed = machine.write(FILE, sssd_conf(directory, _bind(machine, state, directory)), mode=0o600)
    if machine.write(NAMES, with_sss(machine.read(NAMES))):
        machine.run(["pam-auth-update", "--package", "--enable", "sss", "mkhomedir"])
    systemd.ensure(machine, "sssd", restart=changed)
    return state


def sssd_conf(directory: Directory, bind: Mapping[str, str]) -> str:
    """Return sssd.conf. sssd trusts a server only with a valid certificate."""
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
    """Return nsswitch.conf with `sss` as the last source of each database."""
    return "".join(f"{_with(line)}\n" for line in switch.splitlines())


def _with(line: str) -> str:
    name, colon, sources = line.partition(":")
    if not colon or name.strip() not in DATABASES or "sss" in sources.split():
        return line
    return f"{line.rstrip()} sss"


def _bind(machine: Machine, state: BootState, directory: Directory) -> Mapping[str, str]:
    if directory.secret is None:
        return {}
    value = machine.services(require(state.identity).region).get_secret(directory.secret)
    if value is None:
        raise NotYetError("the secret of the directory has no value yet")
    text = value.decode(errors="replace").strip()
    if any(not c.isprintable() for c in text.replace("\n", "") if not text.startswith("{")):
        raise StepError("the secret of the directory is not one line of text")
    try:
        found = parse_json(text) if text.startswith("{") else {"password": text}
    except ValueError as error:
        raise StepError("the secret of the directory is neither a password nor JSON") from error
    fields = {str(k): str(v) for k, v in found.items() if k in ("bind_dn", "password")}
    if any("\n" in value or "\r" in value for value in fields.values()) or not fields.get("password"):
        raise StepError("the secret of the directory has no `password` of one line")
    return fields
