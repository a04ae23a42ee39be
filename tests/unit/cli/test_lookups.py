"""FindBlockers-ups of an existing VPC and file systems: recorded, queried with --live, never guessed."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from support.builders import a_spec_text
from support.clouds import OPERATOR, RunningCloud, running_cloud

from gpucluster.cli import main as program
from gpucluster.cli.context import resolve_file
from gpucluster.cli.resources import recorded
from gpucluster.engine.offline.answers import Recording, read, write
from gpucluster.engine.offline.model import Value
from gpucluster.engine.offline.show import comment, lines
from gpucluster.plan.codec import dumps
from gpucluster.plan.names import LUSTRE_PORTS

OWNER = "210987654321"  # it shares the site's VPC
GIT = shutil.which("git") or "git"
RunCommand = Callable[..., tuple[int, str, str]]

NAMED = {"vpc": "vpc-0123456789abcdef0", "a": "subnet-0123456789abcdef0", "b": "subnet-0fedcba9876543210"}
NAMED |= {"efs": "fs-0123456789abcdef0", "lustre": "fs-0fedcba9876543210"}
QUESTIONS = {
    "the machine image": "aws:ec2/getAmi:getAmi",
    "the account of the credentials": "aws:index/getCallerIdentity:getCallerIdentity",
    "the KMS key": "aws:kms/getKey:getKey",
    "the site's own VPC": "aws:ec2/getVpc:getVpc",
    "the site's own subnet": "aws:ec2/getSubnet:getSubnet",
    "the site's own EFS": "aws:efs/getFileSystem:getFileSystem",
    "the site's own Lustre": "aws:fsx/lustreFileSystem:LustreFileSystem",
}


KEY = {
    "arn": "arn:aws:kms:us-east-1:123456789012:key/0123abcd-0123-0123-0123-0123456789ab",
    "enabled": True,
    "keyManager": "CUSTOMER",
    "keySpec": "SYMMETRIC_DEFAULT",
    "keyUsage": "ENCRYPT_DECRYPT",
}


def site(ids: dict[str, str], *changes: tuple[str, str]) -> str:
    """A cluster that creates neither VPC nor file systems."""
    network = f"vpc: {ids['vpc']}\n    subnets: {{us-east-1a: {ids['a']}, us-east-1b: {ids['b']}}}"
    storage = (
        f"storage:\n  - {{mount: /home, efs: {{id: {ids['efs']}}}}}\n"
        f"  - {{mount: /data, fsx_lustre: {{zone: us-east-1a, id: {ids['lustre']}}}}}\n"
    )
    return a_spec_text(
        ("region: us-east-2", "region: us-east-1"),
        ("cidr: 10.42.0.0/16\n    zones: [us-east-2a, us-east-2b]", network),
        ("  machine: m7i.2xlarge", "  machine: m7i.2xlarge\n  address: 10.42.0.10"),
        ("partitions:", f"{storage}partitions:"),
        ("aws:\n", "aws:\n  kms_key: alias/research\n"),
        *changes,
    )


def answers(ids: dict[str, str]) -> dict[str, Recording]:
    """Return the answers of an account with these resources, by look-up."""
    image = {
        "filters": [{"name": "name", "values": ["gpucluster-ubuntu-24.04-slurm-24.11"]}],
        "owners": ["self"],
    }
    vpc = {
        "arn": f"arn:aws:ec2:us-east-1:123456789012:vpc/{ids['vpc']}",
        "enableDnsHostnames": True,
        "enableDnsSupport": True,
        "ownerId": "210987654321",
        "id": ids["vpc"],
    }

    def one(what: str, arguments: Value, answer: Value) -> Recording:
        return Recording(token=QUESTIONS[what], arguments=arguments, answer=answer)

    def subnet(zone: str, cidr: str) -> Recording:
        return one(
            "the site's own subnet",
            {"id": ids[zone]},
            {
                "arn": f"arn:aws:ec2:us-east-1:123456789012:subnet/{ids[zone]}",
                "availabilityZone": f"us-east-1{zone}",
                "availableIpAddressCount": 250,
                "cidrBlock": cidr,
                "id": ids[zone],
                "vpcId": ids["vpc"],
            },
        )

    efs = {"dnsName": "efs.example.org", "fileSystemId": ids["efs"]}
    return {
        "image": one("the machine image", image, {"id": "ami-1", "imageId": "ami-1", "rootDeviceName": "/dev/sda1"}),
        "caller": one("the account of the credentials", {}, {"accountId": "123456789012", "id": "123456789012"}),
        "key": one("the KMS key", {"keyId": "alias/research"}, KEY),
        "vpc": one("the site's own VPC", {"id": ids["vpc"]}, vpc),
        "a": subnet("a", "10.42.0.0/24"),
        "b": subnet("b", "10.42.1.0/24"),
        "efs": one("the site's own EFS", {"fileSystemId": ids["efs"]}, efs),
        "lustre": one(
            "the site's own Lustre", {"id": ids["lustre"]}, {"dnsName": "l.example.org", "mountName": "abcd"}
        ),
    }  # fmt: skip


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    def ask(*words: object) -> tuple[int, str, str]:
        code = program.run([str(word) for word in words])
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    return ask


def put(folder: Path, text: str, recorded: dict[str, Recording] | None, name: str = "site.yaml") -> Path:
    """Return a spec in a folder, beside the recorded answers."""
    (folder / "lookups").mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    if recorded is not None:
        (folder / "lookups/burst.yaml").write_text(write(recorded.values()))
    return folder / name


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return put(tmp_path, site(NAMED), answers(NAMED))


def test_each_one_without_an_answer_is_named_with_the_file_and_the_command_that_records_it(
    tmp_path: Path, run_command: RunCommand
) -> None:
    spec = put(tmp_path, site(NAMED), {})
    code, out, err = run_command("plan", spec, "--policy")
    assert (code, out.splitlines()[-1].startswith("burst: 9 rules over ")) == (0, True)
    assert all(f"looked up at `pulumi up`: {what} ({token}" in out for what, token in QUESTIONS.items())
    first = err[: err.index("  next: ")]
    assert all(what in first for what in QUESTIONS)
    assert f"and {tmp_path}/lookups/burst.yaml has no answer" in first
    assert f"`gpucluster plan {spec} --resources --live --record` queries the account" in err
    assert all(f"token: {token}\n" in err for token in QUESTIONS.values())


def test_diff_without_answers_leaves_them_open_and_names_the_file_and_the_command(
    tmp_path: Path, run_command: RunCommand
) -> None:
    """Regression: `diff` refused it, so two specs of a colleague could not be compared. `plan` takes no revision."""
    spec = put(tmp_path, site(NAMED), {})
    code, _, err = run_command("diff", spec, spec)
    assert code == 0
    for word in ("old", "new"):
        assert f"warning[open-look-up] {word}: burst: the program looks up" in err
    assert f"{tmp_path}/lookups/burst.yaml has no answer: dependent properties are not compared\n" in err
    assert f"next: `gpucluster plan {spec} --resources --live --record` queries the account" in err
    assert "warning[open-look-up]" not in run_command("diff", spec, spec, "--no-resources")[2]


def test_open_lookups_are_in_every_form_of_the_policy_page(tmp_path: Path, run_command: RunCommand) -> None:
    """Without them a reader of the comment takes 0 violations for everything."""
    spec = put(tmp_path, site(NAMED), {})
    code, out, err = run_command("plan", spec, "--policy", "-o", "json")
    assert code == 0
    assert {one["token"] for one in json.loads(out)["open_lookups"]} == set(QUESTIONS.values())
    assert "warning[open-look-up]" in err
    comment = run_command("plan", spec, "--policy", "-o", "markdown")[1]
    assert "- looked up at \\`pulumi up\\`: the KMS key" in comment
    answered = put(tmp_path / "known", site(NAMED), answers(NAMED))
    said = run_command("plan", answered, "--policy", "-o", "json")
    assert (json.loads(said[1])["open_lookups"], said[2]) == ([], "")


def test_texts_and_rights_are_read_without_an_answer_about_the_site(
    tmp_path: Path, run_command: RunCommand
) -> None:
    """Regression: the placeholder of a subnet had no count of addresses. `--policy` passed unread texts, and `diff` compared no rights."""
    files = [tmp_path / side / "burst.yaml" for side in ("old", "new")]
    for file, jobs in zip(files, ("a", "b"), strict=True):
        file.parent.mkdir()
        read = ("aws:\n  kms_key", f'aws:\n  jobs: {{read: ["s3://example-{jobs}"]}}\n  kms_key')
        file.write_text(site(NAMED, read))
    code, out, err = run_command("plan", files[0], "--policy", "-o", "json")
    assert (code, "not checked" in err) == (0, False)
    texts = {"wide-policy", "secret-in-user-data"}
    assert [one for one in json.loads(out)["findings"] if one["rule"] in texts] == []
    code, out, err = run_command("diff", *files, "-o", "json")
    assert code == 0, err
    found = json.loads(out)["diff"]
    assert not [one for one in found["unseen"] if "rights" in one]
    assert [one["name"] for one in found["rights"]] == ["burst-jobs"]


def test_policies_check_resources_that_use_answers(spec: Path, run_command: RunCommand) -> None:
    code, out, _ = run_command("plan", spec, "--policy", "-o", "json")
    assert (code, json.loads(out)["ok"]) == (0, True)


def test_diff_reads_the_answers_beside_both_files(
    spec: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    """A new image under the same name replaces the instances. The spec alone does not show it."""
    known = answers(NAMED)
    told_now = {"id": "ami-2", "imageId": "ami-2", "rootDeviceName": "/dev/sda1"}
    known["image"] = Recording(
        token=known["image"].token, arguments=known["image"].arguments, answer=told_now
    )
    other = put(tmp_path / "later", site(NAMED), known)
    code, out, _ = run_command("diff", spec, other, "-o", "json")
    changed = {one["type"]: one["properties"] for one in json.loads(out)["diff"]["resources"]}
    assert code == 0
    (image,) = [one for one in changed["aws:ec2/launchTemplate:LaunchTemplate"] if one["name"] == "imageId"]
    assert (image["before"], image["after"]) == ("ami-1", "ami-2")


def test_diff_without_an_answer_names_the_revision(
    spec: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    """Answers of the new revision may complete the old one. The new revision uses only its own file."""
    known = answers(NAMED)
    del known["efs"]
    new = put(tmp_path / "new", site(NAMED), known)
    code, _, err = run_command("diff", spec, new)
    assert code == 0
    said = f"warning[open-look-up] new: burst: the program looks up the site's own EFS, and {tmp_path}/new/lookups"
    assert said in err


def test_diff_reads_the_answers_of_the_revision(
    tmp_path: Path, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of the new revision complete the old ones. An invalid file of the old revision is named with its revision."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    known, past = answers(NAMED), answers(NAMED)
    del past["efs"]
    spec = put(tmp_path / "specs", site(NAMED), past)
    _commit("first")
    put(tmp_path / "specs", site(NAMED, ("max: 16", "max: 32")), known)
    code, out, _ = run_command("diff", "main:specs/site.yaml", "specs/site.yaml", "-o", "json")
    assert (code, json.loads(out)["diff"]["worst"]) == (0, "live")
    (spec.parent / "lookups/burst.yaml").write_text("schema: 2\n")
    _commit("second")
    put(tmp_path / "specs", site(NAMED), known)
    code, out, err = run_command("diff", "main:specs/site.yaml", "specs/site.yaml")
    assert (code, out) == (2, "")
    assert "main:specs/lookups/burst.yaml: schema: found 2, expected 1" in err


def _commit(said: str) -> None:
    argv = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", said)
    for words in (("init", "-q", "-b", "main"), ("add", "specs"), argv):
        subprocess.run([GIT, *words], check=True, capture_output=True)


ENTRY = write([answers(NAMED)["vpc"]])
STEERS = "\\e]0;x\\a\\e[2Jgone"
WRONG = {
    "an empty file": ("", "burst.yaml:1:1: "),
    "junk": ("\x00\x01", "burst.yaml:1:1: "),
    "a list": ("- 1\n", "the file: expected dict, found list"),
    "an unknown key": (ENTRY.replace("    answer", "    answers"), "lookups[0]: unknown keys answers"),
    "a key twice": (f"{ENTRY}    answer: null\n", "burst.yaml:7:5: "),
    "an entry twice": (ENTRY + ENTRY.partition("lookups:\n")[2], "two answers to aws:ec2/getVpc:getVpc"),
    "a token of nobody": (ENTRY.replace("getVpc:getVpc", "getVpcs:getVpcs"), "lookups[0].token: 'aws:ec2/getVpcs"),
    "an answer of the wrong type": (
        ENTRY.replace('"enableDnsSupport": true', '"enableDnsSupport": "false"'),
        "lookups[0].answer.enableDnsSupport: found 'false', expected true or false: it is the site's own VPC"),
    "an answer without what is read of it": (
        ENTRY.replace('"id": "vpc-0123456789abcdef0", ', '"name": 3, '),
        "lookups[0].answer.id: found nothing, expected a text"),
    "a key that steers the terminal": (f'{ENTRY}"{STEERS}": 1\n', "unknown keys gone"),
    "a token that steers the terminal": (ENTRY.replace("token: aws", f'token: "{STEERS}"\n    "x'), "burst.yaml:"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), list(WRONG.values()), ids=list(WRONG))
def test_file_that_is_wrong_ends_the_verb_with_the_place(
    text: str, said: str, tmp_path: Path, run_command: RunCommand
) -> None:
    spec = put(tmp_path, site(NAMED), None)
    (tmp_path / "lookups/burst.yaml").write_text(text)
    code, out, err = run_command("plan", spec, "--resources")
    assert (code, out) == (2, "")
    assert said in err
    assert f"{tmp_path}/lookups/burst.yaml" in err
    assert "\x1b" not in err


def test_recorded_answers_are_in_the_plan_and_printable(tmp_path: Path) -> None:
    known = answers(NAMED)
    hostile = {"dnsName": "\x1b]0;x\x07\x1b[2Jd\u202e", "fileSystemId": NAMED["efs"]}
    known["efs"] = Recording(token=known["efs"].token, arguments=known["efs"].arguments, answer=hostile)
    spec = put(tmp_path, site(NAMED), known)
    planned = recorded(resolve_file(spec).plan, spec)
    assert planned is not None
    assert {(one.token, one.answered) for one in planned.lookups} == {(t, True) for t in QUESTIONS.values()}
    (head,) = [one for one in planned.resources if one.type == "aws:ec2/instance:Instance"]
    assert (head.properties["ami"], head.properties["subnetId"]) == ("ami-1", NAMED["a"])
    shown = "".join(lines(planned, properties=True)) + comment(planned, reproduce="x") + dumps(planned)
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


@pytest.fixture(scope="module")
def account() -> Iterator[RunningCloud]:
    import pytest_socket

    pytest_socket.socket_allow_hosts(["127.0.0.1", "::1", "localhost"], allow_unix_socket=True)
    with running_cloud() as cloud:
        yield cloud


def a_site(cloud: RunningCloud) -> dict[str, str]:
    """Return an account with a VPC of two subnets, an EFS, a Lustre, and an image of gpucluster."""
    ec2, efs, fsx = (cloud.client(service) for service in ("ec2", "efs", "fsx"))
    vpc = ec2.create_vpc(CidrBlock="10.42.0.0/16")["Vpc"]["VpcId"]
    for name in ("EnableDnsSupport", "EnableDnsHostnames"):
        ec2.modify_vpc_attribute(VpcId=vpc, **{name: {"Value": True}})
    made = {
        zone: ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=f"us-east-1{zone}")
        for zone, cidr in (("a", "10.42.0.0/24"), ("b", "10.42.1.0/24"))
    }
    subnets = {zone: one["Subnet"]["SubnetId"] for zone, one in made.items()}
    cloud.api.moto.register_image("gpucluster-ubuntu-24.04-slurm-24.11")
    lustre: dict[str, Any] = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250}
    group = ec2.create_security_group(GroupName="lustre", Description="lustre", VpcId=vpc)["GroupId"]
    itself = [{"GroupId": group}]
    ports: list[Any] = [
        {"IpProtocol": "tcp", "FromPort": a, "ToPort": b, "UserIdGroupPairs": itself} for a, b in LUSTRE_PORTS
    ]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=ports)
    ec2.authorize_security_group_egress(GroupId=group, IpPermissions=ports)
    cloud.clock.move(60)  # FSx sees rules late
    system = fsx.create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[subnets["a"]],
        SecurityGroupIds=[group],
        LustreConfiguration=lustre,
    )
    home = efs.create_file_system(CreationToken="home")["FileSystemId"]
    kms = cloud.client("kms")
    kms.create_alias(
        AliasName="alias/research",
        TargetKeyId=kms.create_key(KeyUsage="ENCRYPT_DECRYPT")["KeyMetadata"]["KeyId"],
    )
    cloud.api.moto.share_vpc(vpc, OWNER)
    return {"vpc": vpc, **subnets, "efs": home, "lustre": system["FileSystem"]["FileSystemId"]}


@pytest.fixture
def credentials(account: RunningCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", account.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", OPERATOR[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", OPERATOR[1])
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials of the first who asked


@pytest.mark.loopback
@pytest.mark.usefixtures("credentials")
def test_answers_of_the_account_are_recorded_for_the_next_plan(
    account: RunningCloud, tmp_path: Path, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = a_site(account)
    spec = tmp_path / "site.yaml"
    spec.write_text(site(ids))
    code, live, err = run_command("plan", spec, "--resources", "--live", "--record", "--properties")
    path = tmp_path / "lookups/burst.yaml"
    assert code == 0, err
    assert f"recorded 8 answers in {path}" in err
    assert {one.token for one in read(path)} == set(QUESTIONS.values())
    assert OPERATOR[1] not in path.read_text()
    recorded = {one.token.rpartition(":")[2]: one.answer or {} for one in read(path)}
    assert (
        recorded["getSubnet"]["arn"] == f"arn:aws:ec2:us-east-1:{OWNER}:subnet/{recorded['getSubnet']['id']}"
    )
    assert recorded["getCallerIdentity"] == {"accountId": "123456789012", "id": "123456789012"}
    assert str(recorded["getKey"]["arn"]).startswith("arn:aws:kms:us-east-1:123456789012:key/")
    assert str(recorded["getKey"]["arn"]) in live
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody answers there
    assert run_command("plan", spec, "--resources", "--properties")[:2] == (0, live)


@pytest.mark.loopback
@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "the account in us-east-1 did not answer: "),
        ({}, "there is no fs-0123456789abcdef0 in us-east-1 for these credentials"),
    ],
    ids=["a wrong secret", "a file system that is not there"],
)
def test_account_that_refuses_leaves_no_record(  # noqa: PLR0917  two columns, four fixtures
    change: dict[str, str], said: str, account: RunningCloud, tmp_path: Path, run_command: RunCommand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in change.items():
        monkeypatch.setenv(name, value)
    spec = put(tmp_path, site(NAMED), answers(NAMED))
    before = (tmp_path / "lookups/burst.yaml").read_bytes()
    code, out, err = run_command("plan", spec, "--resources", "--live", "--record")
    assert (code, out) == (2, "")
    assert said in err
    assert (tmp_path / "lookups/burst.yaml").read_bytes() == before
