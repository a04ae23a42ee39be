"""The provider's process loads Pulumi's messages without the SDK."""

import subprocess
import sys

import pytest

LOADED = """
from gpucluster.sandbox.provider.bare_sdk import load_messages_only
load_messages_only()
import sys
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc
from gpucluster.sandbox.provider.servicer import AwsStandIn
assert provider_pb2.CheckRequest(urn="x").urn == "x"
print(sorted({one.split(".")[1] for one in sys.modules if one.startswith("pulumi.")}), "boto3" in sys.modules)
"""
WHOLE = """
import pulumi
from gpucluster.sandbox.provider.bare_sdk import load_messages_only
load_messages_only()
import pulumi as again
print(again is pulumi and hasattr(again, "ComponentResource"))
"""


@pytest.mark.parametrize(
    ("text", "printed"), [(LOADED, "['runtime'] False"), (WHOLE, "True")], ids=["alone", "after the SDK"]
)
def test_messages_are_loaded_and_a_whole_sdk_stays(text: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-I", "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == printed, done.stderr
