"""Users and sshd of a machine: recorded answers of a login machine, healthy and after a fault."""

import subprocess

import pytest

from gpucluster.checks import remedies, sshd, user_files, users
from gpucluster.checks.check import CheckStatus, ParseError, QueryOutput
from gpucluster.checks.users import Account, AccountsWant

PASS, FAIL = CheckStatus.PASS, CheckStatus.FAIL
VISION, SPEECH = (
    Account(name="vision", uid=5001, home="/home/vision"),
    Account(name="speech", uid=5002, home="/home/speech"),
)


def said(*texts: str) -> tuple[QueryOutput, ...]:
    return tuple(QueryOutput(code=0, stdout=text) for text in texts)


# --- accounts --------------------------------------------------------------------------------------------
WANT = AccountsWant(users=(VISION, SPEECH), only_own_group=True, ages=True)
ACCOUNTS = """\
passwd:vision:x:5001:5001::/home/vision:/bin/bash
group:vision:x:5001:
shadow:vision:20700:99999:
groups:vision:vision
passwd:speech:x:5002:5002::/home/speech:/bin/bash
group:speech:x:5002:
shadow:speech:20700:99999:
groups:speech:speech
today:20780
"""
WITHOUT_SPEECH = "".join(
    line for line in ACCOUNTS.splitlines(keepends=True) if "speech" not in line
)  # after userdel


@pytest.mark.parametrize(
    ("before", "after", "found", "remedy"),
    [
        ("passwd:vision:x:5001", "passwd:vision:x:6001", "vision has the uid 6001, not 5001", "usermod --uid 5001 vision"),
        ("vision:x:5001:5001:", "vision:x:5001:100:", "vision has the primary gid 100, not 5001", "usermod --gid 5001 vision"),
        ("group:vision:x:5001", "group:vision:x:6001", "group vision has the gid 6001, not 5001", "groupmod --gid 5001 vision"),
        ("group:vision:x:5001:\n", "", "group vision is missing", "groupadd --gid 5001 vision"),
        ("groups:vision:vision", "groups:vision:vision sudo docker", "vision is also in sudo, docker", "usermod --groups '' vision"),
        ("/home/vision", "/tmp/vision", "vision has the home /tmp/vision, not /home/vision", "usermod --home /home/vision vision"),
        ("vision:/bin/bash", "vision:/usr/sbin/nologin", "vision has the shell /usr/sbin/nologin", "usermod --shell /bin/bash vision"),
        ("vision:20700:99999:", "vision:20700:99999:1", "the account vision has expired", "usermod --expiredate '' vision"),
    ],
)  # fmt: skip
def test_account_that_is_not_the_plan_s(before, after, found, remedy):
    assert users.evaluate_accounts(users.parse_accounts(said(ACCOUNTS)), WANT).verdict is PASS
    assert before in ACCOUNTS
    finding = users.evaluate_accounts(users.parse_accounts(said(ACCOUNTS.replace(before, after))), WANT)
    assert (finding.verdict, finding.found, finding.culprits) == (FAIL, found, ("vision",))
    assert finding.remedy == f"on {{machine}}: {remedy}"


DUE = "vision must change the password before any command"


@pytest.mark.parametrize(
    ("shadow", "found"),
    [
        ("0:99999:", DUE),
        ("20700:79:", DUE),
        ("20700:80:", ""),
        ("0::", DUE),
        ("20700::", ""),
        ("::", ""),
        (":30:", ""),
        ("20700:-1:", ""),
    ],
)
def test_password_that_must_be_changed(shadow, found):
    """Regression: after `chage -d 0` PAM refused every command over SSH, and only the day of expiry was read."""
    answer = users.parse_accounts(said(ACCOUNTS.replace("vision:20700:99999:", f"vision:{shadow}")))
    finding = users.evaluate_accounts(answer, WANT)
    assert finding.found == (found or finding.expected)
    assert finding.remedy == (found and "on {machine}: chage --lastday -1 --maxdays -1 vision")
    host = AccountsWant(users=(VISION, SPEECH), only_own_group=False)
    assert users.evaluate_accounts(answer, host).verdict is PASS, "an existing host may have passwords"


def test_missing_user_is_made_with_the_group():
    finding = users.evaluate_accounts(users.parse_accounts(said(WITHOUT_SPEECH)), WANT)
    assert finding.found == "group speech is missing, user speech is missing"
    assert finding.remedy == (
        "on {machine}: groupadd --gid 5002 speech; "
        "useradd --uid 5002 --gid 5002 --no-create-home --home-dir /home/speech --shell /bin/bash speech"
    )


def test_account_that_expires_later_and_groups_of_an_existing_host_are_no_fault():
    text = ACCOUNTS.replace("vision:20700:99999:", "vision:20700:99999:20781")
    assert users.evaluate_accounts(users.parse_accounts(said(text)), WANT).verdict is PASS
    groups = users.parse_accounts(
        said(ACCOUNTS.replace("groups:vision:vision", "groups:vision:vision video"))
    )
    host = AccountsWant(users=(VISION, SPEECH), only_own_group=False)
    assert users.evaluate_accounts(groups, host).verdict is PASS


@pytest.mark.parametrize(
    "text", ["", "today:x\n", "passwd:vision:x\ntoday:1\n", "passwd:v:x:y:1::/h:/s\ntoday:1\n"]
)
def test_answer_without_end_or_with_other_rows_is_unknown(text):
    with pytest.raises(ParseError):
        users.parse_accounts(said(text))


# --- keys ------------------------------------------------------------------------------------------------
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHZp vision@example.org"
KEYS = user_files.KeysWant(folder="/etc/ssh/authorized_keys.d", keys={"vision": (KEY,)})
FOLDER = f"644 root vision\n--\nvision:{KEY}\n"
FILE = "/etc/ssh/authorized_keys.d/vision"
WRITE = f"rm -f {FILE}; printf '%s\\n' '{KEY}' >{FILE}; chmod 0644 {FILE}"


@pytest.mark.parametrize(
    ("shown", "found", "remedy"),
    [
        ("--\n", "the key of vision is missing", f"mkdir -p /etc/ssh/authorized_keys.d; {WRITE}"),
        (FOLDER + "vision:ssh-rsa AAAAB3 foreign\n", "the keys of vision are others", WRITE),
        (FOLDER.replace("AIHZp", "AIHZq"), "the keys of vision are others", WRITE),
        (FOLDER.replace("644 root", "666 root"), f"{FILE} is not root's, or sshd cannot trust or read it", f"chown root:root {FILE}; chmod 0644 {FILE}"),
        (FOLDER.replace("644 root", "600 root"), f"{FILE} is not root's, or sshd cannot trust or read it", f"chown root:root {FILE}; chmod 0644 {FILE}"),
        (FOLDER.replace("root", "vision"), f"{FILE} is not root's, or sshd cannot trust or read it", f"chown root:root {FILE}; chmod 0644 {FILE}"),
        ("644 root ubuntu\n" + FOLDER + "ubuntu:ssh-rsa AAAAB3 foreign\n", "/etc/ssh/authorized_keys.d/ubuntu is a key file of no user with keys", "rm /etc/ssh/authorized_keys.d/ubuntu"),
    ],
)  # fmt: skip
def test_keys_that_are_not_the_plan_s(shown, found, remedy):
    assert user_files.evaluate_keys(user_files.parse_keys(said(FOLDER)), KEYS).verdict is PASS
    finding = user_files.evaluate_keys(user_files.parse_keys(said(shown)), KEYS)
    assert (finding.verdict, finding.found) == (FAIL, found)
    assert finding.remedy == f"on {{machine}}: {remedy}"


FOLDERS = "755 root /etc/ssh/authorized_keys.d\n755 root /etc/ssh\n755 root /etc\n755 root /\n"


@pytest.mark.parametrize(
    ("before", "after", "folder"),
    [
        ("755 root /etc/ssh/", "700 root /etc/ssh/", "/etc/ssh/authorized_keys.d"),
        ("755 root /etc/ssh/", "777 root /etc/ssh/", "/etc/ssh/authorized_keys.d"),
        ("755 root /etc/ssh\n", "775 root /etc/ssh\n", "/etc/ssh"),
        ("755 root /etc\n", "755 vision /etc\n", "/etc"),
    ],
)
def test_folder_that_sshd_does_not_pass_or_trust(before, after, folder):
    """Regression: nobody could log in with a key, and all checks passed. sshd reads the file as its user."""
    healthy = FOLDERS + FOLDER
    assert user_files.evaluate_keys(user_files.parse_keys(said(healthy)), KEYS).verdict is PASS
    assert before in healthy
    finding = user_files.evaluate_keys(user_files.parse_keys(said(healthy.replace(before, after))), KEYS)
    assert finding.found == f"{folder} is not root's, or sshd cannot trust or pass it"
    assert (finding.verdict, finding.culprits) == (FAIL, (folder,))
    assert finding.remedy == f"on {{machine}}: chown root:root {folder}; chmod 0755 {folder}"


def test_look_at_keys_shows_the_folders(tmp_path):
    (tmp_path / "keys").mkdir(mode=0o700)
    (tmp_path / "keys/vision").write_text(f"{KEY}\n")
    (query,) = user_files.query_keys(user_files.KeysWant(folder=str(tmp_path / "keys"), keys={}))
    shown = subprocess.run(query.argv, capture_output=True, text=True, check=True).stdout
    found = user_files.parse_keys(said(shown))
    assert (found.files["vision"].lines, found.folders[str(tmp_path / "keys")]) == ((KEY,), False)
    assert found.folders.keys() == {str(tmp_path / "keys"), *map(str, (tmp_path / "keys").parents)}


def test_plan_without_keys_needs_no_folder():
    nobody = user_files.KeysWant(folder="/etc/ssh/authorized_keys.d", keys={})
    assert user_files.evaluate_keys(user_files.parse_keys(said("--\n")), nobody).verdict is PASS
    with pytest.raises(ParseError):
        user_files.parse_keys(said("vision\n--\n"))


# --- homes and a job in one ------------------------------------------------------------------------------
HOMES = user_files.HomesWant(users=(VISION, SPEECH), makes=True)
SHOWN = "5001 700 directory:/home/vision\n5002 2770 directory:/home/speech\n--\n"


@pytest.mark.parametrize(
    ("before", "after", "found", "remedy"),
    [
        ("5001 700", "5002 700", "/home/vision belongs to the uid 5002, not 5001", "chown 5001:5001 /home/vision"),
        ("5001 700", "5001 777", "others may write in /home/vision (0777)", "chmod o-w /home/vision"),
        ("5001 700", "5001 500", "vision may not use /home/vision (0500)", "chmod u+rwx /home/vision"),
        ("5001 700 directory", "5001 600 regular file", "/home/vision is a regular file", "mv /home/vision /home/vision.other; mkhomedir_helper vision 0077"),
        ("5001 700 directory:/home/vision\n", "", "/home/vision is missing", "mkhomedir_helper vision 0077"),
    ],
)  # fmt: skip
def test_home_that_is_not_the_user_s(before, after, found, remedy):
    assert user_files.evaluate_homes(user_files.parse_homes(said(SHOWN)), HOMES).verdict is PASS
    assert before in SHOWN
    finding = user_files.evaluate_homes(user_files.parse_homes(said(SHOWN.replace(before, after))), HOMES)
    assert (finding.verdict, finding.found, finding.culprits) == (FAIL, found, ("vision",))
    assert finding.remedy == f"on {{machine}}: {remedy}"


def test_homes_that_a_file_server_has_may_be_missing():
    own = user_files.HomesWant(users=(VISION,), makes=False)
    assert user_files.evaluate_homes({}, own).verdict is PASS
    with pytest.raises(ParseError):
        user_files.parse_homes(said("directory:/home/vision\n--\n"))


def test_job_that_cannot_write_in_its_home():
    want = user_files.JobHomeWant(nodes=2)
    both = user_files.parse_job(said("n1 ok\nn2 ok\n"))
    assert user_files.evaluate_job(both, want).verdict is PASS
    assert user_files.evaluate_job(user_files.parse_job(said("n1 ok\n")), want).found == "1 nodes answered"
    wrong = user_files.parse_job(said("n1 ok\nn2 /home/vision: sh: 1: cd: can't cd to /home/vision\n"))
    finding = user_files.evaluate_job(wrong, want)
    assert (finding.verdict, finding.culprits) == (FAIL, ("n2",))
    assert finding.found == "n2: /home/vision: sh: 1: cd: can't cd to /home/vision"


# --- sshd ------------------------------------------------------------------------------------------------
SSHD_T = """\
authenticationmethods publickey
authorizedkeyscommand none
authorizedkeysfile /etc/ssh/authorized_keys.d/%u
kbdinteractiveauthentication no
passwordauthentication no
permitrootlogin no
usepam yes
"""
PAM = """\
account [success=1 default=ignore] pam_listfile.so item=user sense=allow onerr=fail quiet file=/etc/gpucluster/ssh-operators
account required pam_slurm_adopt.so action_no_jobs=deny action_adopt_failure=deny action_generic_failure=deny
account    required     pam_nologin.so
# account  required     pam_access.so
"""
OPERATORS = "root\nops\n"
REFUSED = "robotics@127.0.0.1: Permission denied (publickey).\n"
SSHD = sshd.SshdWant(
    values={key: value for key, _, value in (line.partition(" ") for line in SSHD_T.splitlines())},
    among={},
    users=("root", "vision"),
    methods=("publickey",),
    admission=sshd.Admission(operators=("root", "ops")),
    unset=("allowusers", "denyusers"),
)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("passwordauthentication no", "passwordauthentication yes", "passwordauthentication is yes, not no"),
        ("passwordauthentication no\n", "passwordauthentication no\npasswordauthentication yes\n", "passwordauthentication is no, yes, not no"),
        ("permitrootlogin no", "permitrootlogin without-password", "permitrootlogin is without-password, not no"),
        ("/etc/ssh/authorized_keys.d/%u", ".ssh/authorized_keys", "authorizedkeysfile is .ssh/authorized_keys, not /etc/ssh/authorized_keys.d/%u"),
        ("kbdinteractiveauthentication no\n", "", "kbdinteractiveauthentication is missing, not no"),
        ("permitrootlogin no\n", "permitrootlogin no\ndenyusers vision\ndenyusers speech\n", "denyusers is vision, speech, and must not be set"),
    ],
)  # fmt: skip
def test_sshd_that_admits_others(before, after, found):
    healthy = sshd.parse_sshd(said(SSHD_T, PAM, OPERATORS, REFUSED))
    assert sshd.evaluate_sshd(healthy, SSHD).verdict is PASS
    finding = sshd.evaluate_sshd(
        sshd.parse_sshd(said(SSHD_T.replace(before, after), PAM, OPERATORS, REFUSED)), SSHD
    )
    assert (finding.verdict, finding.found) == (FAIL, found)
    key = finding.culprits[0]
    assert f"({key})" in finding.remedy
    assert finding.remedy.endswith(remedies.restart("gpucluster-agent", "ssh"))


def test_running_sshd_with_another_configuration_is_found():
    """`sshd -T` reads only the files; an option on the command line of sshd is not in them."""
    offers = REFUSED.replace("publickey", "publickey,password,keyboard-interactive")
    finding = sshd.evaluate_sshd(sshd.parse_sshd(said(SSHD_T, PAM, OPERATORS, offers)), SSHD)
    assert finding.found == "the running sshd offers publickey, password, keyboard-interactive, not publickey"
    assert "SSHD_OPTS" in finding.remedy
    admitted = sshd.evaluate_sshd(sshd.parse_sshd(said(SSHD_T, PAM, OPERATORS, "admitted\n")), SSHD)
    assert admitted.found == "the running sshd offers none, not publickey"
    with pytest.raises(ParseError):
        sshd.parse_sshd(
            said(SSHD_T, PAM, OPERATORS, "ssh: connect to host 10.0.0.7 port 22: Connection timed out\n")
        )
    with pytest.raises(ParseError):
        sshd.parse_sshd(said("", PAM, OPERATORS, REFUSED))


def test_sshd_that_listens_elsewhere_is_found():
    """Regression: with `ListenAddress 127.0.0.1` nobody reached sshd, and the check asked there."""
    assert "ip -4 -o route get" in sshd.query_sshd(SSHD)[-1].argv[2]
    refused = "ssh: connect to host 10.0.0.7 port 22: Connection refused\n"
    finding = sshd.evaluate_sshd(sshd.parse_sshd(said(SSHD_T, PAM, OPERATORS, refused)), SSHD)
    assert finding.found == "sshd refuses connections at the machine's own address"
    assert "(listenaddress|port|addressfamily)" in finding.remedy


def test_file_that_keeps_users_out_is_found():
    """Regression: PAM's account stage, which reads it, is after what the probe of sshd sees."""
    shown = f"{REFUSED}nologin:/etc/nologin\nnologin:/run/nologin\n"
    finding = sshd.evaluate_sshd(sshd.parse_sshd(said(SSHD_T, PAM, OPERATORS, shown)), SSHD)
    assert (finding.verdict, finding.culprits) == (FAIL, ("nologin",))
    assert (
        finding.found
        == "/etc/nologin keeps all users but root out, /run/nologin keeps all users but root out"
    )
    assert finding.remedy == "on {machine}: rm /etc/nologin /run/nologin"
    both = SSHD_T.replace("permitrootlogin no", "permitrootlogin yes")
    finding = sshd.evaluate_sshd(sshd.parse_sshd(said(both, PAM, OPERATORS, shown)), SSHD)
    assert finding.culprits == ("permitrootlogin", "nologin")
    assert finding.remedy.startswith("on {machine}: rm /etc/nologin /run/nologin; for file in ")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("account required pam_slurm", "#account required pam_slurm"),
        ("account required pam_slurm", "account optional pam_slurm"),
        ("account required pam_slurm", "account [default=ignore] pam_slurm"),
        ("action_no_jobs=deny", "action_no_jobs=ignore"),
        ("action_generic_failure=deny", "action_generic_failure=deny # no more"),
        ("account [success=1", "account sufficient pam_permit.so\naccount [success=1"),
        ("account [success=1", "-account sufficient pam_permit.so\naccount [success=1"),
        ("account [success=1", "Account\\\n sufficient pam_permit.so\naccount [success=1"),
        ("account [success=1", "@include site\naccount [success=1"),
        ("[success=1 default=ignore]", "sufficient"),
        ("file=/etc/gpucluster/ssh-operators", "file=/etc/passwd"),
    ],
)
def test_node_that_admits_users_without_a_job_is_found(before, after):
    """pam.conf(5): the control word and the arguments decide, and the first line that is sufficient ends the stack."""
    assert before in PAM
    changed = PAM.replace(before, after)
    finding = sshd.evaluate_sshd(sshd.parse_sshd(said(SSHD_T, changed, OPERATORS, REFUSED)), SSHD)
    same = "# no more" in after
    assert finding.verdict is (PASS if same else FAIL)
    if not same:
        assert finding.culprits == ("pam",)
        assert finding.remedy == f"on {{machine}}: {remedies.restart('gpucluster-agent')}"


@pytest.mark.parametrize("names", ["root\nops\nmallory\n", "root\n", ""])
def test_node_with_other_operators_is_found(names):
    finding = sshd.evaluate_sshd(sshd.parse_sshd(said(SSHD_T, PAM, names, REFUSED)), SSHD)
    assert (finding.verdict, finding.culprits) == (FAIL, ("pam",))
    assert finding.found.startswith("/etc/gpucluster/ssh-operators has ")


def test_files_that_pam_includes_are_read(tmp_path):
    """A line in common-auth of the account stack comes before ours."""
    (tmp_path / "sshd").write_text(f"@include common-auth\n{PAM}")
    (tmp_path / "common-auth").write_text("auth required pam_unix.so\naccount sufficient pam_permit.so\n")
    asked = sshd.query_sshd(SSHD)[1].argv[-1].replace("/etc/pam.d", str(tmp_path))
    text = subprocess.run(["/bin/sh", "-c", asked], capture_output=True, text=True, check=True).stdout
    finding = sshd.evaluate_sshd(sshd.parse_sshd(said(SSHD_T, text, OPERATORS, REFUSED)), SSHD)
    assert "account line 1 is account sufficient pam_permit.so" in finding.found


def test_existing_host_keeps_its_own_places_of_keys():
    want = sshd.SshdWant(
        values={}, among={"authorizedkeysfile": "/etc/ssh/authorized_keys.d/%u"}, users=("root",)
    )
    places = "authorizedkeysfile .ssh/authorized_keys /etc/ssh/authorized_keys.d/%u\n"
    assert sshd.evaluate_sshd(sshd.parse_sshd(said(places, PAM, "")), want).verdict is PASS
    without = sshd.parse_sshd(said("authorizedkeysfile .ssh/authorized_keys\n", PAM, ""))
    finding = sshd.evaluate_sshd(without, want)
    assert (
        finding.found == "authorizedkeysfile is .ssh/authorized_keys, without /etc/ssh/authorized_keys.d/%u"
    )
