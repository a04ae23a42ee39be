"""A guest with Debian's own kernel: what the kernel of the test machine lacks is tried there. The guest has no network; apt brings its kernel.

QEMU emulates it, so it needs no virtualization. Its file system is an archive in memory: busybox, Python, nft, and the modules of
Debian's kernel. A program of a test runs in it as root and prints lines.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from support.waiting import BOUND_S

CACHE = Path("/var/cache/gpucluster/guest")
KERNEL = "linux-image-cloud-amd64"
_APPLETS = ("sh", "mount", "ip", "poweroff")
_LEFT_OUT = ("test", "__pycache__", "idlelib", "lib2to3", "dist-packages", "site-packages", "ensurepip")
_BEGIN, _END = "guest: begin", "guest: end"
_INIT = f"""#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
echo '{_BEGIN}'
python3 /program.py 2>&1
echo "{_END} $?"
poweroff -f
"""
_QEMU = ("qemu-system-x86_64", "-accel", "tcg", "-m", "1024", "-nographic", "-no-reboot", "-nic", "none")


def run(program: str, files: Mapping[str, str], folder: Path) -> tuple[str, ...]:
    """Run a Python program in a new guest, and return its lines. `files`: what it finds, path -> content."""
    kernel = _kernel()
    root = folder / "root"
    _fill(root, kernel, {"init": _INIT, "program.py": program, **files})
    archive = folder / "initrd"
    names = "".join(f"{path.relative_to(root)}\n" for path in sorted(root.rglob("*")))
    _ran("cpio", "--create", "--format=newc", "--quiet", "--file", str(archive), cwd=root, given=names)
    shutil.rmtree(root)
    image = next((kernel / "boot").glob("vmlinuz-*"))
    asked = ("-kernel", str(image), "-initrd", str(archive), "-append", "console=ttyS0 quiet panic=-1")
    said = _ran(*_QEMU, *asked)
    archive.unlink()
    _, _, after = said.replace("\r", "").partition(f"{_BEGIN}\n")
    lines, ended, _ = after.partition(f"{_END} 0\n")
    if not ended:
        raise AssertionError(f"the guest failed:\n{said[-3000:]}")
    return tuple(lines.splitlines())


def _kernel() -> Path:
    """Return the unpacked package of Debian's kernel; apt checks its signature."""
    shown = _ran("apt-cache", "depends", KERNEL)
    package = next((line.split()[1] for line in shown.splitlines() if "Depends: linux-image-" in line), None)
    assert package is not None, f"apt does not list {KERNEL}: apt-get update"
    unpacked = CACHE / package
    if unpacked.exists():
        return unpacked
    CACHE.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=CACHE, prefix=".", ignore_cleanup_errors=True) as folder:
        made = Path(folder) / package
        made.mkdir()
        _ran("apt-get", "download", "-qq", package, cwd=made)
        (archive,) = made.glob("*.deb")
        _ran("dpkg-deb", "-x", str(archive), str(made))
        archive.unlink()
        (version,) = (made / "lib" / "modules").iterdir()
        _ran("/sbin/depmod", "-b", str(made), version.name)
        with suppress(OSError):  # another test was first
            made.rename(unpacked)
    return unpacked


def _fill(root: Path, kernel: Path, files: Mapping[str, str]) -> None:
    for folder in ("bin", "sbin", "proc", "sys", "dev", "tmp", "run", "mnt", "etc"):
        (root / folder).mkdir(parents=True)
    (root / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\nslurm:x:64030:64030::/:/bin/sh\n")
    shutil.copy2("/bin/busybox", root / "bin" / "busybox")
    for applet in _APPLETS:
        (root / "bin" / applet).symlink_to("busybox")
    python = Path("/usr/bin/python3").resolve()
    for program in (python, Path("/usr/sbin/nft"), Path("/bin/kmod"), Path("/bin/false")):
        _copy(program, root)
    (root / "sbin" / "modprobe").symlink_to("/bin/kmod")  # the kernel's own path of it
    (root / "usr" / "bin" / "python3").symlink_to(python.name)
    standard = Path(f"/usr/lib/{python.name}")
    shutil.copytree(
        standard, root / str(standard).lstrip("/"), ignore=shutil.ignore_patterns(*_LEFT_OUT, "config-*")
    )
    for extension in (standard / "lib-dynload").glob("*.so"):
        _copy(extension, root)
    shutil.copytree(kernel / "lib" / "modules", root / "lib" / "modules")
    for name, content in files.items():
        (root / name).write_text(content)
        (root / name).chmod(0o755)


def _copy(file: Path, root: Path) -> None:
    """Copy a program with the libraries that it loads."""
    for one in (file, *_libraries(file)):
        to = root / str(one).lstrip("/")
        if not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(one.resolve(), to)


def _libraries(file: Path) -> Iterator[Path]:
    for line in _ran("ldd", str(file)).splitlines():
        path = next((word for word in line.split() if word.startswith("/")), None)
        if path is not None:
            yield Path(path)


def _ran(*argv: str, cwd: Path | None = None, given: str = "") -> str:
    program = shutil.which(argv[0])
    assert program is not None, f"{argv[0]} is missing: python3 tools/prepare.py test-all"
    done = subprocess.run(
        [program, *argv[1:]], cwd=cwd, input=given, capture_output=True, text=True, check=False, timeout=BOUND_S
    )  # fmt: skip
    assert done.returncode == 0, f"{argv[:3]}: {done.stderr[-2000:]}"
    return done.stdout
