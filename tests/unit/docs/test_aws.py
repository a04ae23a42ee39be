"""docs/aws.md: its commands parse or run, its spec passes check, and its figures are those of the code."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from support.aws_cli import AwsCli, aws_cli
from support.builders import a_plan, on_aws
from support.clouds import running_cloud
from support.page_commands import command_of, commands_of, require_parsable
from support.readme import matches, sessions

from gpucluster import catalog
from gpucluster.catalog.data_files import read_data
from gpucluster.catalog.quotas import quotas
from gpucluster.cli import main as program
from gpucluster.doctor import requirements
from gpucluster.elastic import machine_command
from gpucluster.plan import names
from gpucluster.plan.model import SlurmOnAws
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "aws.md").read_text()
LINES = commands_of(TEXT)
ON_HEAD = [words[1:] for words in LINES if words[:2] == ["sudo", "gpucluster"]]
SMOKE = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)[0]
OURS = [words for words in LINES if words[0] == "gpucluster"]


def test_the_page_has_each_step_of_a_clusters_life() -> None:
    verbs = {words[1] for words in OURS}
    assert {"check", "plan", "doctor", "image", "diff", "down", "sandbox"} <= verbs
    assert {"pulumi up", "pulumi login", "pulumi stack", "aws sts"} <= {" ".join(w[:2]) for w in LINES}


@pytest.mark.parametrize("words", OURS, ids=" ".join)
def test_each_verb_and_option_exists_and_takes_what_is_given(words: list[str]) -> None:
    require_parsable(words)


def smoke_plan() -> SlurmOnAws:
    report = inspect_text(SMOKE, "stacks/smoke.yaml", catalog.load())
    assert report.spec is not None
    return on_aws(resolve(report.spec, catalog.load()))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the spec of the page, as the page tells to write it."""
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/smoke.yaml").write_text(SMOKE)
    return tmp_path


def test_small_spec_passes_without_warning_and_prints_its_cost(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(clone)
    (session,) = sessions(TEXT)
    assert len(session.steps) == 2
    for command, shown in session.steps:
        assert program.run(shlex.split(command)[1:]) == 0
        printed = capfd.readouterr()
        assert "warning[" not in printed.out + printed.err
        assert matches(shown, printed.out), printed.out


def test_small_spec_is_one_small_node_with_a_budget_and_a_way_in() -> None:
    plan = smoke_plan()
    (pool,) = plan.pools
    (source,) = pool.sources
    assert (source.market.value, pool.max) == ("on-demand", 1)
    assert plan.access.ssm
    assert plan.budget is not None
    assert len(plan.users) == 1


def test_quotas_of_the_page_are_those_of_the_catalog() -> None:
    """The table has code, name and vCPUs. The requests suffice for the small spec and for the builder of the image."""
    rows = re.findall(r"^\| (.*?) \| (.*?) \| (L-\w+) \| (.*?) \|$", TEXT, re.MULTILINE)
    assert {(code, name) for _, name, code, _ in rows} <= {(one.code, one.name) for one in quotas()}
    machines = catalog.load().machines
    table = {(who.split("`")[1], code): sum(map(int, cpus.split("+"))) for who, _, code, cpus in rows}
    builder = machines["m7i.2xlarge"].vcpus
    first = inspect_text((ROOT / "stacks/first.yaml").read_text(), "stacks/first.yaml", catalog.load()).spec
    assert first is not None
    needed: dict[tuple[str, str], int] = {("smoke", "L-1216C47A"): builder}
    for plan in (smoke_plan(), on_aws(resolve(first, catalog.load()))):
        for use in requirements.quota_uses(plan, catalog.load(), ()):
            assert use.quota is not None
            key = (plan.name, use.quota.code)
            needed[key] = needed.get(key, 0) + (use.vcpus or 0)
    del needed["first", "L-1216C47A"]  # the head of that spec: the table is about its nodes
    assert table == needed
    asked = {
        words[words.index("--quota-code") + 1]: int(words[-1])
        for words in LINES
        if "request-service-quota-increase" in words
    }
    assert asked == {code: cpus for (who, code), cpus in needed.items() if who == "smoke"}


def test_quotas_come_before_what_needs_them() -> None:
    """And doctor after the image, which it looks for."""
    typed = [" ".join(words) for words in LINES]
    order = [
        "aws service-quotas request",
        "pulumi stack init",
        "gpucluster image build",
        "gpucluster doctor",
        "pulumi up",
    ]
    first = [next(i for i, line in enumerate(typed) if line.startswith(begin)) for begin in order]
    assert first == sorted(first)


def test_files_of_the_image_are_those_of_the_catalog() -> None:
    pins = read_data("image.json")["pins"].items()
    other = {f"slurm-{v}" for v in catalog.load().slurm_supported if v != catalog.load().slurm_default}
    wanted = {
        (pin["part"], pin["file"])
        for name, pin in pins
        if pin["file"] and not pin.get("optional") and name not in other
    }
    assert set(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", TEXT, re.MULTILINE)) == wanted


def test_supported_version_of_slurm_is_the_one_of_check() -> None:
    (said,) = re.findall(r"`(supported: [^`]+)`", TEXT)
    report = inspect_text(SMOKE.replace("26.05", "25.05"), "stacks/smoke.yaml", catalog.load())
    assert [one for one in report.problems if said in one.message]


def test_status_object_and_outputs_are_those_of_the_program() -> None:
    outputs = set(re.findall(r"pulumi stack output (\w+)", TEXT))
    source = (ROOT / "src/gpucluster/aws/program.py").read_text()
    assert outputs == {"bucket", "head"}
    assert all(f'pulumi.export("{one}"' in source for one in outputs)
    assert f")/{names.STATUS_KEY}" in TEXT


def test_operator_policies_have_no_session_on_the_head() -> None:
    """The page says that they do not contain it."""
    assert "do not contain `ssm:StartSession`" in TEXT
    assert "ssm:StartSession" not in (ROOT / "docs/permissions.md").read_text()


def test_first_job_is_of_the_user_and_partition_of_the_spec() -> None:
    (typed,) = [words[2:] for words in LINES if words[:2] == ["sudo", "-iu"]]
    plan = smoke_plan()
    user, partition = plan.users[0].name, plan.partitions[0].name
    assert typed == [user, "srun", f"--partition={partition}", "--gres=gpu:1", "--time=10", "nvidia-smi"]


def test_day_2_commands_of_the_page_name_its_stack_which_systems_manager_reaches() -> None:
    """Regression: the page had `pool drain -c burst`, which ended with 2 for a cluster on AWS."""
    day_2 = {"status", "validate", "pool", "node", "why", "timeline", "reconcile", "logs", "exec", "bundle"}
    found = [words for words in OURS if words[1] in day_2]
    assert {words[1] for words in found} == day_2 - {"node"}
    for words in found:
        assert words[2] == "smoke" or words[words.index("-c") + 1] == "smoke", words
    assert smoke_plan().access.ssm


@pytest.mark.parametrize("words", ON_HEAD, ids=" ".join)
def test_what_is_typed_on_the_head_is_a_command_there(words: list[str], tmp_path: Path) -> None:
    machine = tmp_path / "machine.json"
    machine.write_text('{"cluster": "smoke", "role": "head"}')
    asked: list[str] = []

    def load(module: str) -> machine_command.Program:
        asked.append(module)
        return lambda argv: 0

    assert machine_command.main(words[1:], machine, load) == 0
    assert asked


def test_a_wrong_option_would_be_found() -> None:
    command, rest = command_of(["gpucluster", "image", "build", "--no-such-option"])
    with pytest.raises(Exception, match="No such option"):
        command.make_context("image build", list(rest))


def test_other_programs_are_only_those_that_the_page_needs() -> None:
    programs = {
        ".",
        "gpucluster",
        "make",
        "pulumi",
        "squeue",
        "srun",
        "aws",
        "export",
        "sudo",
        "git",
        "python3",
        "~/aws-cli/bin/pip",
    }
    assert {words[0] for words in LINES} == programs


def test_a_job_uses_only_what_the_page_installs() -> None:
    """The image has no AWS CLI: the page told `srun aws s3 ls`."""
    typed = {words[2] for words in LINES if words[0] == "srun"}
    assert typed == {"~/aws-cli/bin/aws"}
    assert "python3-venv" in (ROOT / "playbooks/packages.yml").read_text()


def test_the_state_has_its_region_everywhere() -> None:
    urls = [
        word
        for words in LINES
        for word in words
        if "s3://research-pulumi-state" in word and words[0] != "gpucluster"
    ]
    assert len(urls) >= 3
    assert all(url.endswith("s3://research-pulumi-state?region=us-east-1") for url in urls)


def test_files_of_a_second_operator_are_committed() -> None:
    """Pulumi writes the encrypted key of the secrets into the folder that Pulumi.yaml names, and git does not ignore it."""
    (added,) = [words[2:] for words in LINES if words[:2] == ["git", "add"]]
    folder = re.search(r"stackConfigDir: (\S+)", (ROOT / "Pulumi.yaml").read_text())
    assert folder is not None
    assert added == ["stacks/smoke.yaml", f"{folder[1]}/Pulumi.smoke.yaml"]
    ignored = subprocess.run(["git", "check-ignore", *added], cwd=ROOT, check=False)  # noqa: S607
    assert ignored.returncode == 1, "no file is ignored"


def test_service_linked_roles_are_those_that_doctor_asks_for() -> None:
    typed = {words[-1] for words in LINES if words[:3] == ["aws", "iam", "create-service-linked-role"]}
    plan = a_plan()
    assert requirements.roles(smoke_plan()) == {}, "the page says that only a spec with spot needs one"
    assert typed == set(requirements.roles(plan).values())


# Commands that the sandbox does not serve. The CLI still parses their arguments.
NOT_IN_THE_SANDBOX = frozenset(
    {
        ("budgets", "create-budget"),
        ("ec2", "delete-snapshot"),
        ("ec2", "deregister-image"),
        ("iam", "attach-role-policy"),  # moto does not load the policies that AWS manages
        ("iam", "create-service-linked-role"),
        ("kms", "create-grant"),
        ("resourcegroupstaggingapi", "get-resources"),
        ("service-quotas", "request-service-quota-increase"),
        ("s3", "cp"),  # there is no cluster
        ("ssm", "start-session"),
        ("sso", "login"),
    }
)
INTERACTIVE = [["aws", "configure", "sso"]]  # it asks questions, and only version 2 of the CLI has it
USAGE = 252  # the exit code of the AWS CLI for wrong arguments


@pytest.mark.loopback
def test_each_command_of_the_aws_cli_runs(
    tmp_path: Path, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the page, with the real AWS CLI against the sandbox. The policies are those that the page writes."""
    monkeypatch.chdir(clone)
    for words in OURS:
        if "--operator-policy" in words:
            folder = words.index("--to") + 1
            command, rest = command_of([*words[:folder], str(tmp_path / words[folder])])
            with command.make_context("plan", list(rest)) as context:
                command.invoke(context)
    with running_cloud() as cloud, aws_cli(cloud, tmp_path) as cli:
        for words in [words for words in LINES if words[0] == "aws" and words[:3] not in INTERACTIVE]:
            line = shlex.join([_filled(word, cli, tmp_path) for word in words[1:]])
            answer = cli.run(line)
            assert answer.code != USAGE, f"{line}: {answer.err}"
            if words[1:3] == ["s3", "cp"]:
                assert "(404)" in answer.err, "the page names the error of an object that does not exist yet"
            if tuple(words[1:3]) not in NOT_IN_THE_SANDBOX:
                assert answer.code == 0, f"{line}: {answer.err}"
        made = {one["PolicyName"] for one in cli.json("iam list-policies --scope Local")["Policies"]}
        written = {path.stem for path in (tmp_path / "iam").iterdir()}
        assert made == written, "the page makes a policy of each file"


def _filled(word: str, cli: AwsCli, folder: Path) -> str:
    """The word after the shell: `$(...)` is run, and files are in the folder of the test."""
    outputs = {"head": "i-0123456789abcdef0", "bucket": "smoke-0123456"}

    def typed(found: re.Match[str]) -> str:
        program_of, *rest = shlex.split(found[1])
        return cli.text(shlex.join(rest)) if program_of == "aws" else outputs[rest[2]]

    return re.sub(r"\$\((.*?)\)", typed, word).replace("file://iam/", f"file://{folder}/iam/")


def test_files_that_the_page_names_are_there() -> None:
    for path in re.findall(r"`((?:src|docs|stacks|playbooks)/[^` ]+)`", TEXT):
        made = (
            "stacks/smoke.yaml",  # the spec of the page
            "stacks/lookups/smoke.yaml",  # by `plan --record`
            "stacks/config/Pulumi.smoke.yaml",  # by `pulumi stack init`
        )
        assert (ROOT / path).exists() or path in made, path


def test_it_says_what_never_ran() -> None:
    assert "never run on AWS" in " ".join(TEXT.lower().replace("aws", "AWS").split())
    assert "Nobody has run these parts on AWS" in TEXT
