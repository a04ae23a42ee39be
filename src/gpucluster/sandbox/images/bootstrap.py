"""The command lines and variables of an image build: mmdebstrap for the tree, Ansible through chroot for the rest."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpucluster.catalog import mount_options
from gpucluster.files import shipped
from gpucluster.plan import names
from gpucluster.sandbox.capsule.private_mounts import Overlay, within
from gpucluster.sandbox.machines import gpu_facts
from gpucluster.sandbox.paths import API_ENDPOINT
from gpucluster.shipment import image_variables

PREFERENCES = "etc/apt/preferences.d/build"  # below the tree, during the build
_DOWNLOAD = "apt-get install --yes --download-only --no-install-recommends"

ANSIBLE_ENV = {
    "ANSIBLE_NOCOWS": "1",
    "ANSIBLE_RETRY_FILES_ENABLED": "0",
    "ANSIBLE_DEPRECATION_WARNINGS": "0",
    "ANSIBLE_LOCALHOST_WARNING": "0",
    "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
    "ANSIBLE_REMOTE_TEMP": "/tmp/.ansible",  # noqa: S108  in the image, and removed from it
    "LC_ALL": "C.UTF-8",
}


def mmdebstrap_argv(
    *,
    suite: str,
    packages: Sequence[str],
    lines: Sequence[str],
    options: Sequence[str],
    debs: Path,
    root: Path,
    preferences: str = "",
    later: Sequence[str] = (),
) -> list[str]:
    """Create `root` from Debian packages; .deb files pass through the cache folder `debs`, also those of `later`.

    `preferences` are apt's, for this build.
    """
    archives = "/var/cache/apt/archives"
    pins = f'mkdir -p "$1"/{PREFERENCES.rpartition("/")[0]} && printf %s {shlex.quote(preferences)} > "$1"/{PREFERENCES}'
    return within(
        [
            "mmdebstrap",
            "--mode=root",
            "--format=directory",
            "--variant=minbase",
            '--aptopt=APT::Install-Recommends "false"',
            *(f"--aptopt={option}" for option in options),
            f"--include={','.join(packages)}",
            "--skip=download/empty",
            "--skip=essential/unlink",
            f'--setup-hook=mkdir -p "$1"{archives}',
            f"--setup-hook=sync-in {debs} {archives}",
            *((f"--setup-hook={pins}",) if preferences else ()),
            *((f'--customize-hook=chroot "$1" {_DOWNLOAD} {" ".join(later)}',) if later else ()),
            f"--customize-hook=sync-out {archives} {debs}",
            suite,
            str(root),
            *lines,
        ]
    )


def ansible_argv(
    playbook: str, *, root: Path, variables: Path, tags: str | None = None, overlay: Overlay | None = None
) -> list[str]:
    """Run a playbook on the tree at `root`, with /proc mounted and, for a layer, as an overlay."""
    program = Path(sys.executable).parent / "ansible-playbook"
    argv = [
        str(program),
        "--connection=community.general.chroot",
        f"--inventory={root},",
        f"--extra-vars=@{variables}",
        *(() if tags is None else (f"--tags={tags}",)),
        str(shipped("playbooks") / playbook),
    ]
    return within(argv, overlay=overlay, proc=root / "proc")


def variables(*, wheels_archive: Path, code_archive: Path, our_wheel: str, code_digest: str) -> str:
    """Every path and name that the playbooks need, as JSON for --extra-vars."""
    files = {
        "wheels_archive": str(wheels_archive),
        "code_archive": str(code_archive),
        "our_wheel": our_wheel,
        "code_digest": code_digest,
    }
    return json.dumps({**image_variables(), **_OF_THE_SANDBOX, **files}, sort_keys=True)


def bare_variables(*, admin: str, home: str, repository: str) -> str:
    """The variables for the playbook of plain machines."""
    values = {
        "admin": admin,
        "admin_home": home,
        "repository": repository,
        "agent_unit": names.AGENT_UNIT,
        "endpoint_file": names.ENDPOINT_FILE,
        "gpu_environment": gpu_facts.environment(),
        "catalog": str(Path(mount_options.__file__).parent),
    }
    return json.dumps(values, sort_keys=True)


_OF_THE_SANDBOX: Mapping[str, object] = {
    "endpoint_file": names.ENDPOINT_FILE,
    "endpoint": API_ENDPOINT,
    "kernel_log": names.KERNEL_LOG_STAND_IN,
    "kernel_log_variable": names.KERNEL_LOG_VARIABLE,
    "gpu_environment": gpu_facts.environment(),
}
