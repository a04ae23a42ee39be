"""The lazy import of the SDK: the same resources, and fewer modules."""

import os
import subprocess
import sys

import pytest
from support.builders import a_plan

from gpucluster.engine.offline import lazy_sdk
from gpucluster.engine.offline.messages import Answer, Order
from gpucluster.plan.codec import dumps, loads

FULL = "from gpucluster.engine.offline import child; child.main()"
LAZY = "from gpucluster.engine.offline import lazy_sdk; lazy_sdk.install(); " + FULL
NAMES = """
import sys
from gpucluster.engine.offline import lazy_sdk
if sys.argv[1:]:
    lazy_sdk.install()
import pulumi_aws as aws
print(aws.ec2.get_vpc.__name__, aws.ec2.get_vpc_output.__module__, aws.ec2.GetAmiResult.__name__)
print(aws.ec2.InstanceRootBlockDeviceArgs(volume_size=1).volume_size, aws.s3.BucketObjectv2.__name__)
print(sorted(aws.ec2.InstanceRootBlockDeviceArgsDict.__optional_keys__))
print(aws.ec2.InstanceType.T3_MICRO.value, aws.ec2.outputs.VpcEndpointDnsEntry.__module__)
print(aws.config.region, aws.types.region if hasattr(aws, "types") else "-", hasattr(aws.ec2, "Nothing"))
from pulumi_aws.iam import Role, RolePolicy
from pulumi_aws import sqs
print(Role.__module__, sqs.Queue.__module__, sqs.queue_policy.QueuePolicy.__name__)
"""


def _python(text: str, *arguments: str, given: str = "") -> str:
    command = [sys.executable, "-c", text, *arguments]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True, env=env).stdout


def _answer(text: str, program: str) -> Answer:
    plan = a_plan()
    order = Order(program=program, plan=plan, project="gpucluster", stack=plan.name, limit_s=60.0)
    return loads(Answer, _python(text, given=dumps(order)).encode())


@pytest.mark.parametrize(
    "program", ["gpucluster.aws.program:declare", "support.planned_programs:lookup_twice"]
)
def test_lazy_and_full_import_declare_the_same(program: str) -> None:
    lazy, full = _answer(LAZY, program), _answer(FULL, program)
    assert lazy.planned is not None
    assert lazy == full


def test_names_that_one_process_read_are_loaded_in_another() -> None:
    """What is loaded is not loaded again."""
    start = "import json, sys; from gpucluster.engine.offline import lazy_sdk; lazy_sdk.install();"
    read = "import pulumi_aws as aws; aws.ec2.InstanceRootBlockDeviceArgs, aws.s3.Bucket;"
    told = "print(json.dumps(lazy_sdk.LOADED))"
    names = _python(f"{start} {read} {told}")
    assert "InstanceRootBlockDeviceArgs" in names
    assert _python(f"{start} lazy_sdk.load(json.loads(sys.argv[1])); {read} {told}", names) == names


def test_names_of_a_service_are_the_same() -> None:
    assert _python(NAMES, "lazy") == _python(NAMES)


def test_program_loads_only_the_modules_that_it_uses() -> None:
    text = (
        "import sys; from gpucluster.engine.offline import lazy_sdk; lazy_sdk.install()\n"
        "import gpucluster.aws.program\n"
        "print(sum(name.startswith('pulumi_aws.ec2.') for name in sys.modules))"
    )
    assert int(_python(text)) < 40


def test_this_python_asks_builtins_for_missing_names() -> None:
    """It holds for CPython 3.11. On a Python where this fails, the planner is right but slow: see lazy_sdk."""
    assert lazy_sdk.asks_builtins_for_missing_names(), (
        f"Python {sys.version.split()[0]} does not call __missing__ of a module's __builtins__:"
        " lazy_sdk needs another way to resolve the names in annotations"
    )


def test_python_that_ignores_missing_builtins_imports_the_whole_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(lazy_sdk._Probe, "__missing__")
    before = list(sys.meta_path)
    assert not lazy_sdk.install()
    assert sys.meta_path == before
