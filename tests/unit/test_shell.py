"""The one door to other programs."""

import pytest

from gpucluster.shell import CommandError, run


def test_output_and_code_come_back_and_bytes_that_are_no_text_do_not_break_it():
    result = run(["/bin/sh", "-c", r"printf '\377ok'; exit 3"], check=False)
    assert (result.code, result.stdout) == (3, "\ufffdok")


def test_a_failure_names_the_program_its_code_and_its_last_words():
    with pytest.raises(CommandError, match=r"ended with code 4: no disk"):
        run(["/bin/sh", "-c", "echo no disk >&2; exit 4"])


def test_a_missing_program_is_a_command_error_with_code_127():
    with pytest.raises(CommandError, match="no such program"):
        run(["gpucluster-no-such-program"])


def test_a_program_that_does_not_end_is_ended():
    with pytest.raises(CommandError, match="not done after"):
        run(["/bin/sleep", "30"], timeout_s=0.05)
