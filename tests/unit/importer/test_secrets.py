"""No password of a site's files is in the spec, in the report or in an error, whatever its characters."""

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpucluster.cli.import_ import report
from gpucluster.importer import keys
from gpucluster.importer.run import import_files

CONF = "ClusterName=c\nSlurmctldHost=ctl\nNodeName=n1 CPUs=2\nPartitionName=p Nodes=n1 Default=YES\n"


def told(folder: Path, *lines: str) -> str:
    (folder / "slurm.conf").write_text(CONF + "\n".join(lines) + "\n")
    found = import_files([folder], version="26.05")
    return "\n".join((*report(found), found.text))


@pytest.mark.parametrize(
    "line",
    [
        "AccountingStoragePass=kJ8/hunter2+xA==",
        "JobCompPass=q/hunter2",
        'JobCompPass="q hunter2"',
        'JobCompPass="q"hunter2',
        "JobCompPass = hunter2 hunter2",
        'JobCompPass="hunter2',
        "JobCompLoc=http://elastic:hunter2@es:9200",
        "JobCompLoc=http://elastic:a/b@hunter2@es:9200",
        "JobCompParams=user=slurm,password=hunter2,hunter2",
        "JobCompParams=api_token=hunter2",
        "SlurmctldParameters=apikey=hunter2",
        "SlurmctldParameters=api_key=hunter2",
        "MCSParameters=credential:hunter2",
        "JobCompPass=\\",
        'HealthCheckProgram="/usr/sbin/nhc --pw hunter2"',
        'HealthCheckProgram="/usr/sbin/nhc -p hunter2 -v"',
        "HealthCheckProgram=/usr/sbin/nhc --pw hunter2",
        'MailProg="/usr/bin/mail hunter2"',
        "JobCompLoc=slurm:hunter2@db/acct",
        "JobCompLoc=slurm:hun@hunter2@db/acct",
        "JobCompLoc=slurm:/hunter2@db/acct",
    ],
)
def test_password_is_not_told(line: str, tmp_path: Path) -> None:
    """Regression: a password with a slash was taken for the path of a socket."""
    assert "hunter2" not in told(tmp_path, line)


def test_what_is_beside_a_password_is_told(tmp_path: Path) -> None:
    text = told(
        tmp_path, "JobCompLoc=http://elastic:hunter2@es:9200/jobs", "JobCompParams=timeout=5,password=x"
    )
    assert "http://…@es:9200/jobs" in text
    assert "timeout=5,password=…" in text


@pytest.mark.parametrize(
    "line",
    [
        "AuthAltParameters=jwt_key=/etc/slurm/jwt.key",
        "AuthAltParameters=jwks=/etc/slurm/jwks.json,jwt_key=/etc/slurm/jwt.key",
        "JobCredentialPrivateKey=/etc/slurm/private.key",
        "JobCredentialPublicCertificate=/etc/slurm/public.crt",
        "JobCompPassScript=/etc/slurm/password-of-mysql",
    ],
)
def test_path_of_a_key_or_a_program_is_told(line: str, tmp_path: Path) -> None:
    """A path is no secret, and who takes the site over has to copy the file."""
    assert f": {line.partition('=')[2]} -> none; " in told(tmp_path, line)


def test_password_under_an_unknown_key_is_not_told(tmp_path: Path) -> None:
    """Regression: one list of words was for keys, and a longer one for words of a value."""
    text = told(tmp_path, "ElasticApiKey=hunter2", "StorageCredential=hunter2", "S3_API_KEY hunter2")
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "line",
    [
        "DbPw=hunter2",
        "S3_Phrase=hunter2",
        "NodeName=n2 CPUs=2 IpmiLogin=hunter2",
        "JobCompParams=user=slurm,pw=hunter2",
        "JobCompParams=aws_access_key_id=hunter2",
        "DB_PW hunter2",
    ],
)
def test_no_value_of_an_unknown_key_is_told(line: str, tmp_path: Path) -> None:
    """Regression: only some words of a key hid its value, and nobody knows what a key is for that Slurm does not know."""
    assert "hunter2" not in told(tmp_path, line)


def test_yes_or_no_of_an_unknown_key_is_told(tmp_path: Path) -> None:
    assert "CacheGroups of slurm.conf: 0 -> none" in told(tmp_path, "CacheGroups=0")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text("/+=@#\"'\\:,;!$%&()|{}[]~^é", max_size=12), st.sampled_from(("{}", '"{}"', "x{}x")))
def test_no_character_shows_a_password(tmp_path: Path, text: str, form: str) -> None:
    assert "hunter2" not in told(tmp_path, f"StoragePass={form.format(f'{text}hunter2{text}')}")


def test_program_is_told_without_its_options(tmp_path: Path) -> None:
    text = told(
        tmp_path, 'HealthCheckProgram="/usr/sbin/nhc --pw hunter2"', "JobCompLoc=slurm:hunter2@db/acct"
    )
    assert "/usr/sbin/nhc …" in text
    assert "slurm:…@db/acct" in text


@pytest.mark.parametrize(
    "line",
    [
        "Licenses=lsdyna_token:100,matlab:30",
        "GresTypes=gpu,token",
        "AccountingStorageTRES=license/token=1,gres/gpu",
    ],
)
def test_name_in_a_list_of_names_is_no_password(line: str, tmp_path: Path) -> None:
    """Regression: the list ended at a licence whose name has `token`, so the licences behind it were lost."""
    assert "…" not in told(tmp_path, line)


def test_names_with_a_secret_word_are_imported(tmp_path: Path) -> None:
    text = told(
        tmp_path,
        "Licenses=lsdyna_token:100,matlab:30",
        "NodeName=n2 CPUs=2 Gres=gpu:passthrough:2 Features=pass=1,ib",
        "PartitionName=token=x Nodes=n2",
    )
    assert "licenses: {lsdyna_token: 100, matlab: 30}" in text
    assert "model: passthrough, count: 2" in text
    assert "…" not in text


def cpu_time(text: str) -> float:
    """The least of three, at least a millisecond: a shorter time is that of the clock."""
    times = [0.0] * 3
    for at in range(3):
        start = time.process_time()
        keys.shown("slurm.conf", "JobCompLoc", text)
        keys.has_secret(text)
        times[at] = time.process_time() - start
    return max(0.001, min(times))


@pytest.mark.parametrize("part", ["a:", "a", "=/", "://", "/", "@a:", "pass", "pass "])
def test_time_grows_with_the_length_of_a_line_not_its_square(part: str) -> None:
    """Regression: each `pass` of a word without `=` searched the rest of the word. 8 times the text is then 64 times the time."""
    assert cpu_time(part * 12_000) < 24 * cpu_time(part * 1_500)
