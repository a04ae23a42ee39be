"""The cluster's munge key. The head creates it at its first boot; all machines read it from the secret.

The key is only in memory and in names.MUNGE_KEY (0400, user munge). It is in no argument, log or state file.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass

from gpucluster.agent.boot import systemd
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.machine import Machine, NotYetError, Services, StepError
from gpucluster.plan import codec, names
from gpucluster.plan.model import Bindings

KEY_BYTES = 128  # bytes; mungekey creates keys of this length, munge accepts 32 to 1024
OPTIONS = f"{names.AGENT_RUN}/munge.env"
SHORTEST, LONGEST = 32, 1024
# munged keeps a silent connection for 2 s. With its two threads, a job with 64 such connections stops Slurm on the node.
THREADS = 128
STOP_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyComparison:
    """Whether the secret has the key of a machine, and the id of the secret's version; empty if it has no value."""

    same: bool
    version: str


def fetch(machine: Machine, state: BootState) -> BootState:
    """Wait until the secret has a value, then start munge with it."""
    value = _services(machine, state).get_secret(_arn(state))
    if value is None:
        raise NotYetError("the head has not created the munge key yet")
    return _start_munge(machine, state, value)


def create_or_fetch(machine: Machine, state: BootState) -> BootState:
    """Create the key if the secret is empty. If two heads create one at the same time, both use the first."""
    services, arn = _services(machine, state), _arn(state)
    value = services.get_secret(arn)
    if value is None:
        # With one fixed token for the first value, the second of two concurrent calls changes nothing.
        token = hashlib.sha256(f"gpucluster first munge key {arn}".encode()).hexdigest()
        services.put_secret(arn, secrets.token_bytes(KEY_BYTES), token=token)
        value = services.get_secret(arn)
    if value is None:
        raise NotYetError("the munge key was written, but the secret does not return it yet")
    return _start_munge(machine, state, value)


def use_installed(machine: Machine, state: BootState) -> BootState:
    """Start munge with the key that Ansible installed on this existing host."""
    try:
        value = machine.path(names.MUNGE_KEY).read_bytes()
    except FileNotFoundError as error:
        raise StepError(f"{names.MUNGE_KEY} is missing; run the playbook again") from error
    return _start_munge(machine, state, value)


def install(machine: Machine, text: str) -> bool:
    """Install the key from base64 text. Return False if it was already installed; ValueError if the text is no key."""
    try:
        value = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        raise ValueError("the key is not in base64") from None  # the message must not contain the text
    if not SHORTEST <= len(value) <= LONGEST:
        raise ValueError(f"the key has {len(value)} bytes, expected {SHORTEST} to {LONGEST}")
    # munged keeps the old key in memory, so it stops first: an interrupted run must not leave it running
    if _installed(machine) not in (None, value):
        machine.run(["systemctl", "stop", "munge.service"], timeout_s=STOP_S)
    return machine.write(names.MUNGE_KEY, value, mode=0o400, owner="munge")


def compare(machine: Machine) -> KeyComparison:
    """Return whether the secret has the key of this machine: then the next machine that boots can talk to it. No key leaves it.

    NotYetError if the secret cannot be read; StepError if this machine has no key, or no bundle.
    """
    bindings = _applied_bindings(machine)
    value, version = machine.services(bindings.region).get_secret_version(bindings.secret)
    return KeyComparison(
        same=value is not None and hmac.compare_digest(value, _own(machine)), version=version
    )


def keeps_own(machine: Machine) -> bool:
    """Whether the agent's next start leaves this machine's key: there is no secret, as on an existing host, or no key yet, or both are one.

    NotYetError if the secret cannot be read; StepError if the bindings cannot.
    """
    if not machine.path(f"{names.BUNDLE_DIR}/{names.BINDINGS_FILE}").exists() or _installed(machine) is None:
        return True
    return not _applied_bindings(machine).secret or compare(machine).same


def restore(machine: Machine) -> KeyComparison:
    """Write the key of this machine into the secret, as a new version, unless the secret has it. Only the head's role may."""
    found = compare(machine)
    if found.same:
        return found
    bindings = _applied_bindings(machine)
    machine.services(bindings.region).put_secret(bindings.secret, _own(machine), token=secrets.token_hex(32))
    return compare(machine)


def _own(machine: Machine) -> bytes:
    value = _installed(machine)
    if value is None:
        raise StepError(f"{names.MUNGE_KEY} is missing; systemctl restart {names.AGENT_UNIT}")
    return value


def _applied_bindings(machine: Machine) -> Bindings:
    path = machine.path(f"{names.BUNDLE_DIR}/{names.BINDINGS_FILE}")
    try:
        return codec.loads(Bindings, path.read_bytes())
    except (OSError, ValueError) as error:
        raise StepError(f"{path} cannot be read: {error}") from error


def _services(machine: Machine, state: BootState) -> Services:
    return machine.services(require(state.identity).region)


def _arn(state: BootState) -> str:
    return require(require(state.bundle).bindings).secret


def _start_munge(machine: Machine, state: BootState, value: bytes) -> BootState:
    if not SHORTEST <= len(value) <= LONGEST:
        raise StepError(
            f"the secret of the munge key has {len(value)} bytes, expected {SHORTEST} to {LONGEST}"
        )
    new_key = machine.write(names.MUNGE_KEY, value, mode=0o400, owner="munge")
    # without --origin munged resolves the host name, which is not set yet
    words = f"--origin={require(state.identity).address} --num-threads={THREADS}"
    new_origin = machine.write(OPTIONS, f'OPTIONS="{words}"\n')
    systemd.ensure(machine, "munge", restart=new_key or new_origin)
    credential = machine.run(["munge", "-n"], timeout_s=10).stdout
    machine.run(["unmunge", "-o", "/dev/null"], stdin=credential, timeout_s=10)
    return state


def _installed(machine: Machine) -> bytes | None:
    try:
        return machine.path(names.MUNGE_KEY).read_bytes()
    except FileNotFoundError:
        return None
