"""Health checks of a node: rows of nvidia-smi's answer and the verdict, among them garbage and hangs."""

import pytest

from gpucluster.checks import health_program
from gpucluster.checks.check import TIMED_OUT, CheckStatus, ParseError, QueryOutput
from gpucluster.checks.health import FaultWant, GpuWant, MemoryWant, PortWant
from gpucluster.checks.health_program import Program
from gpucluster.checks.node_health import NODE_CHECKS

PASS, FAIL = CheckStatus.PASS, CheckStatus.FAIL
TWO = GpuWant(count=2, memory_mib=81920, nvlinks=2)
LINKS = "GPU 0: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\nGPU 1: NVIDIA H100 (UUID: GPU-2)\n\t Link 0: 26.562 GB/s\n\t Link 1: {}\n"
XID_79 = "79 100.000 1 0000:10:00 GPU has fallen off the bus.\n"
XID_31 = "31 100.000 4 0000:10:00 MMU Fault\n"

ROWS = [
    ("gpu.smi", TWO, "0, 81559\n1, 81559\n", PASS, "2 GPUs of 81920 MiB"),
    ("gpu.smi", TWO, "0, 81559\n", FAIL, "nvidia-smi lists 1 GPUs"),
    ("gpu.smi", TWO, "0, 81559\n1, 40000\n", FAIL, "GPU 1 has 40000 MiB"),
    ("gpu.smi", TWO, "0, 80282\n1, 80281\n", PASS, "2 GPUs of 81920 MiB"),
    ("gpu.smi", TWO, "0, 80281\n1, 80280\n", FAIL, "GPU 1 has 80280 MiB"),
    ("gpu.smi", TWO, "0, [Unknown Error]\n1, 81559\n", FAIL, "GPU 0 answers '[Unknown Error]'"),
    ("gpu.ecc", TWO, "0, 0\n1, 0\n", PASS, "no uncorrectable ECC error"),
    ("gpu.ecc", TWO, "0, [N/A]\n1, [N/A]\n", PASS, "no uncorrectable ECC error"),
    ("gpu.ecc", TWO, "0, 0\n1, 1\n", FAIL, "GPU 1 has 1 uncorrectable ECC errors"),
    ("gpu.ecc", TWO, "0, [GPU requires reset]\n1, 0\n", FAIL, "GPU 0 answers '[GPU requires reset]'"),
    ("gpu.remap", TWO, "00000000:10:00.0, No, No\n", PASS, "no pending and no failed row remapping"),
    ("gpu.remap", TWO, "00000000:10:00.0, Yes, No\n", FAIL, "00000000:10:00.0 has a pending row remapping"),
    ("gpu.remap", TWO, "00000000:10:00.0, No, Yes\n", FAIL, "00000000:10:00.0 has a failed row remapping"),
    ("gpu.clocks", TWO, "0, 0x0000000000000001\n1, 0x4\n", PASS, "no GPU slowed by heat or power"),
    ("gpu.clocks", TWO, "0, 0x0000000000000041\n1, 0x1\n", FAIL, "GPU 0 is slowed, reasons 0x40"),
    ("nvl.links", TWO, LINKS.format("26.562 GB/s"), PASS, "2 active links on each of 2 GPUs"),
    ("nvl.links", TWO, LINKS.format("<inactive>"), FAIL, "GPU 1 has 1 active links"),
    ("xid.scan", FaultWant(path="x"), "", PASS, "no XID with a remedy"),
    ("xid.scan", FaultWant(path="x"), XID_31, PASS, "no XID with a remedy"),
    ("xid.scan", FaultWant(path="x"), XID_79, FAIL, "XID 79 on 0000:10:00 (isolate)"),
    ("xid.scan", FaultWant(path="x", judged_at=99.9), XID_79, FAIL, "XID 79 on 0000:10:00 (isolate)"),
    ("xid.scan", FaultWant(path="x", judged_at=100.0), XID_79, PASS, "no XID with a remedy"),
    ("mem.total", MemoryWant(mib=1000), "MemTotal:        1024000 kB\n", PASS, "1000 MiB of memory"),
    ("mem.total", MemoryWant(mib=1001), "MemTotal:        1024000 kB\n", FAIL, "1000 MiB of memory"),
    ("fabric.ports", PortWant(count=2), "a/1 4: ACTIVE\nb/1 4: ACTIVE\n", PASS, "2 active ports"),
    ("fabric.ports", PortWant(count=2), "a/1 4: ACTIVE\nb/1 1: DOWN\n", FAIL, "1 active ports of 2: b/1 is 1: DOWN"),
    ("fabric.ports", PortWant(count=1), "", FAIL, "0 active ports of 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "want", "text", "verdict", "found"), ROWS, ids=[f"{r[0]}-{n}" for n, r in enumerate(ROWS)]
)
def test_verdict(check: str, want: object, text: str, verdict: CheckStatus, found: str) -> None:
    row = NODE_CHECKS[check]
    result = row.evaluate(row.parse((QueryOutput(code=0, stdout=text),)), want)
    assert (result.verdict, result.found) == (verdict, found)


SMI = ("gpu.smi", "gpu.ecc", "gpu.remap", "gpu.clocks", "nvl.links")


@pytest.mark.parametrize("check", SMI)
@pytest.mark.parametrize(
    "output",
    [
        QueryOutput(code=TIMED_OUT, stdout=""),
        QueryOutput(code=9, stdout="NVIDIA-SMI has failed because it couldn't communicate with the driver."),
        QueryOutput(code=0, stdout="no CSV at all\n"),
        QueryOutput(code=0, stdout="\x1b[31m0, 1, 2, 3, 4\n"),
        QueryOutput(code=127, stdout="", stderr="/usr/bin/nvidia-smi: No such file or directory"),
    ],
    ids=["hangs", "no driver", "garbage", "terminal", "missing"],
)
def test_an_answer_that_cannot_be_read_is_no_pass(check: str, output: QueryOutput) -> None:
    with pytest.raises(ParseError):
        NODE_CHECKS[check].parse((output,))


def test_a_driver_without_the_field_is_not_checked_by_it() -> None:
    row = NODE_CHECKS["gpu.clocks"]
    old = QueryOutput(code=2, stdout='Field "clocks_event_reasons.active" is not a valid field to query.\n')
    assert row.evaluate(row.parse((old,)), TWO).verdict is PASS


def test_validation_wants_an_answer_of_every_check() -> None:
    want = Program(path="/x", checks=("gpu.ecc", "mem.total"))
    told = "gpu.ecc\tpass\tno error\nmem.total\tfail\t10 MiB\n"
    found = health_program.parse_program((QueryOutput(code=0, stdout=told),))
    assert health_program.evaluate_program(found, want).found == "mem.total: 10 MiB"
    part = health_program.parse_program((QueryOutput(code=0, stdout="gpu.ecc\tpass\tno error\n"),))
    assert health_program.evaluate_program(part, want).found == "no answer of mem.total"
    good = health_program.parse_program((QueryOutput(code=0, stdout=told.replace("fail", "pass")),))
    assert health_program.evaluate_program(good, want).verdict is PASS
