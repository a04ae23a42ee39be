"""The AWS CLI in one interpreter: one command a line on stdin, one answer a line on stdout, both JSON."""

import contextlib
import io
import json
import sys

from awscli.clidriver import create_clidriver


def main() -> None:
    answers = sys.stdout
    driver = create_clidriver()
    for line in sys.stdin:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            argv = json.loads(line)
            try:
                code = driver.main(argv)
            except SystemExit as end:
                code = end.code
            if {"modify-instance-attribute", "--profile", "--region"} & set(argv):  # these change the session
                driver = create_clidriver()
        texts = [stream.buffer.getvalue().decode(errors="replace") for stream in (out, err)]
        print(json.dumps({"code": code, "out": texts[0], "err": texts[1]}), file=answers, flush=True)


if __name__ == "__main__":
    main()
