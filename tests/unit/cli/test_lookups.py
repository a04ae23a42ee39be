"""Look-ups of a spec on the site's own VPC and file systems: recorded, asked with --live, and never guessed."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from builders import a_spec_text
from clouds import OPERATOR, RunningCloud, running_cloud

from gpucluster.cli import main as program
from gpucluster.cli.desk import resolve_file
from gpucluster.cli.resources import recorded
from gpucluster.cli.sides import path_of
from gpucluster.engine.offline.answers import Recording, read, write
from gpucluster.engine.offline.model import Value
from gpucluster.engine.offline.show import comment, lines
from gpucluster.plan.codec import dumps
from gpucluster.plan.names import LUSTRE_PORTS

GIT = shutil.which("git") or "git"
Told = Callable[..., tuple[int, str, str]]

NAMED = {"vpc": "vpc-0123456789abcdef0", "a": "subnet-0123456789abcdef0", "b": "subnet-0fedcba9876543210"}
NAMED |= {"efs": "fs-0123456789abcdef0", "lustre": "fs-0fedcba9876543210"}
QUESTIONS = {
    "the machine image": "aws:ec2/getAmi:getAmi",
    "the site's own VPC": "aws:ec2/getVpc:getVpc",
    "the site's own subnet": "aws:ec2/getSubnet:getSubnet",
    "the site's own EFS": "aws:efs/getFileSystem:getFileSystem",
    "the site's own Lustre": "aws:fsx/lustreFileSystem:LustreFileSystem",
}


def site(ids: dict[str, str], *changes: tuple[str, str]) -> str:
    """A cluster that makes neither VPC nor file system."""
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
        *changes,
    )


def answers(ids: dict[str, str]) -> dict[str, Recording]:
    """What an account with these would say, by what is asked; each subnet by its own word."""
    image = {
        "filters": [{"name": "name", "values": ["gpucluster-ubuntu-24.04-slurm-24.11"]}],
        "owners": ["self"],
    }
    vpc = {
        "arn": f"arn:aws:ec2:us-east-1:123456789012:vpc/{ids['vpc']}",
        "enableDnsHostnames": True,
        "enableDnsSupport": True,
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
        "vpc": one("the site's own VPC", {"id": ids["vpc"]}, vpc),
        "a": subnet("a", "10.42.0.0/24"),
        "b": subnet("b", "10.42.1.0/24"),
        "efs": one("the site's own EFS", {"fileSystemId": ids["efs"]}, efs),
        "lustre": one(
            "the site's own Lustre", {"id": ids["lustre"]}, {"dnsName": "l.example.org", "mountName": "abcd"}
        ),
    }  # fmt: skip


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    def ask(*words: object) -> tuple[int, str, str]:
        code = program.run([str(word) for word in words])
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    return ask


def put(folder: Path, text: str, recorded: dict[str, Recording] | None, name: str = "site.yaml") -> Path:
    """A spec in a folder, with what was recorded beside it."""
    (folder / "lookups").mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    if recorded is not None:
        (folder / "lookups/burst.yaml").write_text(write(recorded.values()))
    return folder / name


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return put(tmp_path, site(NAMED), answers(NAMED))


def test_each_one_without_an_answer_is_named_with_the_file_and_the_command_that_records_it(
    tmp_path: Path, told: Told
) -> None:
    spec = put(tmp_path, site(NAMED), {})
    code, out, err = told("plan", spec, "--policy")
    assert (code, out) == (2, "")
    first = err[: err.index("  next: ")]
    assert all(what in first for what in QUESTIONS)
    assert f"and {tmp_path}/lookups/burst.yaml has no answer" in first
    assert f"`gpucluster plan {spec} --resources --live --record` asks the account" in err
    assert all(f"token: {token}\n" in err for token in QUESTIONS.values())


def test_a_diff_without_answers_leaves_them_open_and_names_the_file_and_the_command(
    tmp_path: Path, told: Told
) -> None:
    """It was refused: two specs of a colleague's could not be compared. And `plan` takes no revision."""
    spec = put(tmp_path, site(NAMED), {})
    code, _, err = told("diff", spec, spec)
    assert code == 0
    for word in ("old", "new"):
        assert f"warning[open-look-up] {word}: burst: the program looks up" in err
    assert f"{tmp_path}/lookups/burst.yaml has no answer: what hangs on it is not compared\n" in err
    assert f"next: `gpucluster plan {spec} --resources --live --record` asks the account" in err
    assert "warning[open-look-up]" not in told("diff", spec, spec, "--no-resources")[2]
    assert (path_of("HEAD:stacks/a.yaml"), path_of(str(spec))) == ("stacks/a.yaml", str(spec))


def test_policies_judge_what_the_answers_make_of_the_program(spec: Path, told: Told) -> None:
    code, out, _ = told("plan", spec, "--policy", "-o", "json")
    assert (code, json.loads(out)["ok"]) == (0, True)


def test_a_diff_reads_the_answers_beside_both_files(spec: Path, tmp_path: Path, told: Told) -> None:
    """A new image under the same name replaces what boots from it, and a spec alone does not show it."""
    known = answers(NAMED)
    told_now = {"id": "ami-2", "imageId": "ami-2", "rootDeviceName": "/dev/sda1"}
    known["image"] = Recording(
        token=known["image"].token, arguments=known["image"].arguments, answer=told_now
    )
    other = put(tmp_path / "later", site(NAMED), known)
    code, out, _ = told("diff", spec, other, "-o", "json")
    changed = {one["type"]: one["properties"] for one in json.loads(out)["diff"]["resources"]}
    assert code == 0
    (image,) = [one for one in changed["aws:ec2/launchTemplate:LaunchTemplate"] if one["name"] == "imageId"]
    assert (image["before"], image["after"]) == ("ami-1", "ami-2")


def test_a_diff_without_an_answer_says_on_which_side(spec: Path, tmp_path: Path, told: Told) -> None:
    """The past may be answered by the change, the change by nothing else than its own file."""
    known = answers(NAMED)
    del known["efs"]
    new = put(tmp_path / "new", site(NAMED), known)
    code, _, err = told("diff", spec, new)
    assert code == 0
    said = f"warning[open-look-up] new: burst: the program looks up the site's own EFS, and {tmp_path}/new/lookups"
    assert said in err


def test_a_diff_reads_the_answers_of_the_revision(
    tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the change answer what the past did not record; a wrong file of the past is named by revision."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    known, past = answers(NAMED), answers(NAMED)
    del past["efs"]
    spec = put(tmp_path / "stacks", site(NAMED), past)
    _commit("first")
    put(tmp_path / "stacks", site(NAMED, ("max: 16", "max: 32")), known)
    code, out, _ = told("diff", "main:stacks/site.yaml", "stacks/site.yaml", "-o", "json")
    assert (code, json.loads(out)["diff"]["worst"]) == (0, "live")
    (spec.parent / "lookups/burst.yaml").write_text("schema: 2\n")
    _commit("second")
    put(tmp_path / "stacks", site(NAMED), known)
    code, out, err = told("diff", "main:stacks/site.yaml", "stacks/site.yaml")
    assert (code, out) == (2, "")
    assert "main:stacks/lookups/burst.yaml: schema: found 2, expected 1" in err


def _commit(said: str) -> None:
    argv = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", said)
    for words in (("init", "-q", "-b", "main"), ("add", "stacks"), argv):
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
        ENTRY.replace('"id": "vpc-0123456789abcdef0"}\n', '"name": 3}\n').replace("arn", "ern"),
        "lookups[0].answer.arn: found nothing, expected a text"),
    "a key that steers the terminal": (f'{ENTRY}"{STEERS}": 1\n', "unknown keys gone"),
    "a token that steers the terminal": (ENTRY.replace("token: aws", f'token: "{STEERS}"\n    "x'), "burst.yaml:"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), list(WRONG.values()), ids=list(WRONG))
def test_a_file_that_is_wrong_ends_the_verb_with_the_place(
    text: str, said: str, tmp_path: Path, told: Told
) -> None:
    spec = put(tmp_path, site(NAMED), None)
    (tmp_path / "lookups/burst.yaml").write_text(text)
    code, out, err = told("plan", spec, "--resources")
    assert (code, out) == (2, "")
    assert said in err
    assert f"{tmp_path}/lookups/burst.yaml" in err
    assert "\x1b" not in err


def test_what_was_recorded_is_known_to_the_plan_and_steers_no_terminal(tmp_path: Path) -> None:
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
    """A VPC with two subnets, an EFS and a Lustre that somebody made, and an image of ours."""
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
def test_what_the_account_says_is_recorded_and_answers_the_next_plan_alone(
    account: RunningCloud, tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = a_site(account)
    spec = tmp_path / "site.yaml"
    spec.write_text(site(ids))
    code, live, err = told("plan", spec, "--resources", "--live", "--record", "--properties")
    path = tmp_path / "lookups/burst.yaml"
    assert code == 0, err
    assert f"recorded 6 answers in {path}" in err
    assert {one.token for one in read(path)} == set(QUESTIONS.values())
    assert OPERATOR[1] not in path.read_text()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody answers there
    assert told("plan", spec, "--resources", "--properties")[:2] == (0, live)


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
def test_an_account_that_refuses_leaves_no_record(  # noqa: PLR0917  two columns, four fixtures
    change: dict[str, str], said: str, account: RunningCloud, tmp_path: Path, told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in change.items():
        monkeypatch.setenv(name, value)
    spec = put(tmp_path, site(NAMED), answers(NAMED))
    before = (tmp_path / "lookups/burst.yaml").read_bytes()
    code, out, err = told("plan", spec, "--resources", "--live", "--record")
    assert (code, out) == (2, "")
    assert said in err
    assert (tmp_path / "lookups/burst.yaml").read_bytes() == before
