"""net.protocols: protocols that a user opens, from a modprobe that answers as kmod 30 does with each file of modprobe.d."""

import os
import subprocess
from pathlib import Path

import pytest

from gpucluster import agent
from gpucluster.checks import protocols
from gpucluster.checks.check import CheckResult, CheckStatus, ParseError, QueryOutput
from gpucluster.checks.protocols import ProtocolsWant, evaluate_protocols, parse_protocols, query_protocols

OF_IMAGE = Path(agent.__file__).parent / "units/etc/modprobe.d/gpucluster.conf"
MODULES = {"net-pf-43": ("smc",), "net-pf-30": ("tipc",), "net-pf-2-proto-33-type-6": ("dccp", "dccp_ipv4")}
# As kmod: a dependency's `install` counts, too; a name without a module is an error.
MODPROBE = """#!/bin/sh
case "$4" in
{cases}
*) echo "modprobe: FATAL: Module $4 not found in directory /lib/modules/6.1.0" >&2; exit 1;;
esac
"""
PROTOCOLS = "protocol  size sockets  memory press maxhdr  slab module\nTCPv6 2496 4 0 no 320 yes kernel\nUNIX 1024 9 -1 NI 0 yes kernel\n"
HOST, IMAGE = ProtocolsWant(blocked=False), ProtocolsWant(blocked=True)


def lines_of(module: str, installs: dict[str, str]) -> str:
    if module in installs:
        return f"install {installs[module]} "
    return f"insmod /lib/modules/6.1.0/kernel/net/{module}.ko "


def asked(tmp_path: Path, conf: str) -> QueryOutput:
    """Run the query's own shell beside the modprobe."""
    rows = (line.split(maxsplit=2) for line in conf.splitlines() if line.startswith("install "))
    installs = {name: command for _, name, command in rows}
    cases = "\n".join(
        f"{alias}) printf '%s\\n' {' '.join(repr(lines_of(one, installs)) for one in needed)};;"
        for alias, needed in MODULES.items()
    )
    program = tmp_path / "modprobe"
    program.write_text(MODPROBE.replace("{cases}", cases))
    program.chmod(0o755)
    argv = query_protocols(HOST)[0].argv
    paths = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=paths)
    return QueryOutput(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def judged(
    loads: QueryOutput, want: ProtocolsWant, *, more: str = "", disabled: QueryOutput | None = None
) -> CheckResult:
    there = QueryOutput(code=0, stdout=PROTOCOLS + more)
    return evaluate_protocols(
        parse_protocols((loads, there, disabled or QueryOutput(code=0, stdout="0\n"))), want
    )


def test_image_blocks_each_family_that_the_check_asks_about(tmp_path: Path) -> None:
    names = [line.split()[1] for line in OF_IMAGE.read_text().splitlines() if line.startswith("install ")]
    assert sorted(protocols.FAMILIES) == sorted(names)
    assert judged(asked(tmp_path, OF_IMAGE.read_text()), IMAGE).verdict is CheckStatus.PASS


def test_family_that_a_users_socket_loads_is_a_warning_on_existing_hosts(tmp_path: Path) -> None:
    """Ubuntu and Debian load these: any user opens an AF_SMC, AF_TIPC or DCCP socket."""
    result = judged(asked(tmp_path, "install smc /bin/false\n"), HOST)
    assert (result.verdict, result.found) == (
        CheckStatus.WARN,
        "any user's socket loads the modules of tipc and dccp",
    )
    assert result.remedy.startswith(
        "on {machine}: printf 'install %s /bin/false\\n' tipc dccp >>/etc/modprobe.d/zz-protocols.conf  # "
    )


def test_remedy_ends_the_warning(tmp_path: Path) -> None:
    remedy = judged(asked(tmp_path, ""), HOST).remedy
    command = remedy.removeprefix("on {machine}: ").replace("/etc/modprobe.d", str(tmp_path))
    subprocess.run(["/bin/sh", "-ec", command], check=True)
    assert (
        judged(asked(tmp_path, (tmp_path / "zz-protocols.conf").read_text()), HOST).verdict
        is CheckStatus.PASS
    )


def test_open_family_is_a_fault_of_an_image(tmp_path: Path) -> None:
    assert judged(asked(tmp_path, ""), IMAGE).verdict is CheckStatus.FAIL


def test_family_that_is_loaded_is_open_whatever_modprobe_says(tmp_path: Path) -> None:
    """`install` stops no module that a program of root has loaded. A kernel may have the family built in."""
    closed = asked(tmp_path, OF_IMAGE.read_text())
    result = judged(closed, HOST, more="SMC6 1152 0 -1 NI 0 yes smc\nTIPC 900 0 -1 NI 0 yes tipc\n")
    assert (result.verdict, result.found) == (CheckStatus.WARN, "the kernel has smc and tipc")
    assert "; modprobe -r smc tipc  # " in result.remedy


def test_kernel_that_loads_nothing_more_is_closed(tmp_path: Path) -> None:
    done = judged(asked(tmp_path, ""), IMAGE, disabled=QueryOutput(code=0, stdout="1\n"))
    assert done.verdict is CheckStatus.PASS
    nothing = QueryOutput(code=0, stdout="")  # no modprobe
    missing = QueryOutput(code=1, stdout="", stderr="No such file")  # a kernel without modules
    assert judged(nothing, IMAGE, disabled=missing).verdict is CheckStatus.PASS


@pytest.mark.parametrize("text", ["what?", "= net-pf-43\nwhat?", "insmod x.ko", "= x\ninsmod x.ko"])
def test_another_text_is_no_answer(text: str) -> None:
    with pytest.raises(ParseError):
        judged(QueryOutput(code=0, stdout=text), HOST)
