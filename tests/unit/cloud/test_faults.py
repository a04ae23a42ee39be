"""The table of codes: whole, without contradiction, and careful about what it does not know."""

import pytest

from gpucluster.cloud import faults
from gpucluster.cloud.faults import classify, cloud_error
from gpucluster.cloud.port import Fault

SETS = {
    Fault.NO_CAPACITY: faults.NO_CAPACITY,
    Fault.UNSUPPORTED: faults.UNSUPPORTED,
    Fault.THROTTLED: faults.THROTTLED,
    Fault.QUOTA: faults.QUOTA,
    Fault.CONFIGURATION: faults.CONFIGURATION,
    Fault.TOKEN: faults.TOKEN,
    Fault.GONE: faults.GONE,
    Fault.LOST: faults.LOST,
}


def test_every_fault_has_codes():
    assert set(SETS) == set(Fault)


@pytest.mark.parametrize(("fault", "code"), [(f, c) for f, codes in SETS.items() for c in sorted(codes)])
def test_each_code_has_one_class(fault: Fault, code: str):
    assert [f for f, codes in SETS.items() if code in codes] == [fault]
    assert classify(code) is fault


@pytest.mark.parametrize(("code", "part", "fault"), faults.BY_TEXT)
def test_the_text_decides_where_the_code_is_ambiguous(code: str, part: str, fault: Fault):
    assert classify(code, f"Sorry: {part.upper()} ...") is fault


@pytest.mark.parametrize(
    ("sentence", "code", "message", "fault"),
    [
        ("throttling is never lack of capacity", "RequestLimitExceeded", "", Fault.THROTTLED),
        ("a fresh profile passes later", "InvalidParameterValue", "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", Fault.THROTTLED),
        ("another bad value is ours to mend", "InvalidParameterValue", "Value (x) for parameter y", Fault.CONFIGURATION),
    ],
)  # fmt: skip
def test_codes_have_their_classes(sentence: str, code: str, message: str, fault: Fault):
    assert classify(code, message) is fault, sentence


def test_unknown_client_error_stops_the_source():
    assert classify("SomethingNew", status=400) is Fault.CONFIGURATION


def test_unknown_server_error_counts_as_no_answer():
    assert classify("SomethingNew", status=500) is Fault.LOST


def test_error_has_code_and_text_of_the_cloud():
    error = cloud_error("VcpuLimitExceeded", "You have requested more vCPU capacity")
    assert (error.fault, error.code) == (Fault.QUOTA, "VcpuLimitExceeded")
    assert "more vCPU" in str(error)
