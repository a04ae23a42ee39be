"""A job's own user reaches neither the metadata service, nor the secret, nor the key. Root on the node does (the control)."""

import json

import pytest

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]

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
    """A node with a job of the user on it."""
    job = burst.sbatch("-N1", "--gres=gpu:8", script="sleep 60")
    burst.wait("the job runs", lambda: burst.state(job) == "RUNNING")
    return burst.job(job)["batch_host"]


def test_a_jobs_user_reaches_no_credential(burst, node):
    secret = json.loads(burst.exec("head", "cat", "/var/lib/gpucluster/bundle/bindings.json"))["secret"]

    def as_user(*argv):
        return burst.exec(node, *argv, user="researcher", check=False).strip()

    # the control: what root may do here, so that a refusal below is a refusal and no broken command
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


def test_neither_state_nor_user_data_nor_bundle_nor_logs_hold_the_key(burst, node):
    key = burst.exec(node, "base64", "-w0", "/etc/munge/munge.key").strip()
    assert len(key) > 40
    pieces = (key[:40], key[40:80])
    for machine in ("head", node):
        journal = burst.exec(machine, "journalctl", "--no-pager", "-o", "cat")
        state = burst.exec(
            machine,
            "sh",
            "-c",
            "cat /var/lib/gpucluster/*.json /var/lib/gpucluster/bundle/*.json /etc/gpucluster/*.json",
        )
        assert not any(piece in journal + state for piece in pieces)
    files = [p for p in burst.state_dir().rglob("*") if p.is_file() and "/i/" not in str(p)]
    assert any("pulumi" in str(p) for p in files)
    assert not [p for p in files if any(piece.encode() in p.read_bytes() for piece in pieces)]
