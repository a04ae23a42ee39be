"""The user of a job reaches no metadata service, no secret and no munge key. Root on the node reaches them (the control)."""

import base64
import json
from contextlib import suppress
from pathlib import Path

import pytest
from cluster import ROOT, gpucluster
from support.secret_forms import shows, written_forms

from gpucluster.plan import names

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]

TOKEN = (
    "curl -s -m 3 -o /dev/null -w '%{http_code}' -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "
    "http://169.254.169.254/latest/api/token"
)
ASK = """
import sys, boto3, botocore
from botocore.config import Config
endpoint, secret, how = sys.argv[1:]
keys = {"aws_access_key_id": "AKIAINVENTED00000000", "aws_secret_access_key": "invented"} if how == "invented" else {}
unsigned = Config(signature_version=botocore.UNSIGNED) if how == "unsigned" else None
client = boto3.client("secretsmanager", region_name="us-east-1", endpoint_url=endpoint, config=unsigned, **keys)
try:
    print("GOT", len(client.get_secret_value(SecretId=secret)["SecretBinary"]))
except botocore.exceptions.ClientError as error:
    print(error.response["Error"]["Code"])
except botocore.exceptions.BotoCoreError as error:
    print(type(error).__name__)
"""
PYTHON, API = "/opt/gpucluster/venv/bin/python", "http://169.254.169.252:5000"


@pytest.fixture
def node(burst):
    """A node that runs a job of the user."""
    job = burst.sbatch("-N1", "--gres=gpu:8", script="sleep 60")
    burst.wait("the job runs", lambda: burst.state(job) == "RUNNING")
    return burst.job(job)["batch_host"]


def test_user_of_a_job_reaches_no_credential(burst, node):
    secret = json.loads(burst.exec("head", "cat", "/var/lib/gpucluster/bundle/bindings.json"))["secret"]

    def as_user(*argv):
        return burst.exec(node, *argv, user="researcher", check=False).strip()

    # the control: root succeeds with the same commands, so a refusal below is not a broken command
    assert burst.exec(node, "sh", "-c", TOKEN) == "200"
    assert burst.exec(node, PYTHON, "-c", ASK, API, secret, "role").startswith("GOT ")
    assert burst.exec(node, "wc", "-c", "/etc/munge/munge.key") != ""

    assert as_user("sh", "-c", TOKEN) == "000"
    assert as_user(PYTHON, "-c", ASK, API, secret, "role") == "NoCredentialsError"
    assert as_user(PYTHON, "-c", ASK, API, secret, "invented") in {
        "UnrecognizedClientException",
        "InvalidClientTokenId",
    }
    assert as_user(PYTHON, "-c", ASK, API, secret, "unsigned") in {
        "MissingAuthenticationTokenException",
        "MissingAuthenticationToken",
    }
    assert as_user("wc", "-c", "/etc/munge/munge.key") == ""


CONNECT = """
import socket, sys
for port in map(int, sys.argv[1:]):
    try:
        socket.create_connection(("127.0.0.1", port), 3).close()
        print(port, "open")
    except OSError as error:
        print(port, type(error).__name__, error.errno)
"""


def test_user_of_a_job_reaches_no_file_server_tls_proxy_or_daemon_port(burst, node):
    """NFS trusts the uid that a client sends. A job with its own NFS client was root on /home."""
    ports = ("988", "1020", "2049", "20049", "21049", "6890")
    # no server runs here: the kernel refuses root (111), the guard refuses the user (113)
    assert burst.exec(node, PYTHON, "-c", CONNECT, *ports).split()[2::3] == ["111"] * len(ports)
    found = burst.exec(node, PYTHON, "-c", CONNECT, *ports, user="researcher")
    assert found.split()[2::3] == ["113"] * len(ports)


# the files that machines write, without the key's own file, and the processes that run there
WRITTEN = "tar -C / -c --exclude=etc/munge --warning=no-file-changed var/log var/lib/gpucluster etc/gpucluster etc/slurm run/log 2>/dev/null | base64 -w0"
RUNNING = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | base64 -w0"


def of(burst, machine: str, script: str) -> bytes:
    return base64.b64decode(burst.exec(machine, "sh", "-c", script, check=False))


def templates(burst) -> list[dict]:
    ec2 = burst.ec2()
    every = ec2.describe_launch_templates()["LaunchTemplates"]
    found = (ec2.describe_launch_template_versions(LaunchTemplateId=t["LaunchTemplateId"]) for t in every)
    return [version["LaunchTemplateData"] for one in found for version in one["LaunchTemplateVersions"]]


def test_munge_key_is_only_in_its_file_and_its_secret(burst, node):
    key = base64.b64decode(burst.exec(node, "base64", "-w0", "/etc/munge/munge.key"))
    assert len(key) >= 64
    forms = written_forms(key)
    assert shows(of(burst, "head", "base64 -w0 /etc/munge/munge.key"), forms), (
        "the control: the scan finds a key"
    )

    seen = {}
    for machine in ("head", node):
        seen[f"files of {machine}"] = of(burst, machine, WRITTEN)
        seen[f"processes of {machine}"] = of(burst, machine, RUNNING)
        seen[f"journal of {machine}"] = burst.exec(
            machine, "journalctl", "--no-pager", "-o", "export"
        ).encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            seen[f"this machine's {path}"] = path.read_bytes()
    for path in burst.state_dir().rglob("*"):
        if path.is_file() and "/i/" not in str(path):
            seen[f"state: {path}"] = path.read_bytes()
    bucket = json.loads(burst.exec("head", "cat", names.USER_DATA_FILE))["bucket"]
    s3 = burst.client("s3")
    for one in s3.list_object_versions(Bucket=bucket)["Versions"]:
        body = s3.get_object(Bucket=bucket, Key=one["Key"], VersionId=one["VersionId"])["Body"]
        seen[f"object {one['Key']} {one['VersionId']}"] = body.read()
    for instance in burst.ec2().describe_instances()["Reservations"]:
        name = instance["Instances"][0]["InstanceId"]
        output = burst.ec2().get_console_output(InstanceId=name).get("Output", "")
        seen[f"console of {name}"] = output.encode() if isinstance(output, str) else output
    spec = next(path for path in burst.state_dir().rglob("plan.json") if "/i/" not in str(path))
    assert f"state: {spec}" in seen
    shown = gpucluster("plan", str(ROOT / "stacks/burst.yaml"), "--resources", "--output", "json")
    seen["output of plan"] = (shown.stdout + shown.stderr).encode()
    for number, template in enumerate(templates(burst)):
        seen[f"user data of template {number}"] = base64.b64decode(template["UserData"])

    assert any("pulumi" in name for name in seen)
    assert any("bundle.tar.gz" in name for name in seen)
    assert any("/console/" in name and data for name, data in seen.items()), "the host's files"
    assert any(name.startswith("console of") and data for name, data in seen.items()), (
        "the answers of the API"
    )
    assert all(seen[f"{kind} of {m}"] for kind in ("files", "processes", "journal") for m in ("head", node))
    assert [name for name, data in seen.items() if shows(data, forms)] == []


def test_user_data_of_every_template_is_below_the_limit(burst):
    sizes = [len(base64.b64decode(template["UserData"])) for template in templates(burst)]
    assert sizes
    assert max(sizes) < 16 * 1024
