"""Starts the program: the one in this package, or the one that PORTUNUS_BINARY names."""

import os
import platform
import stat
import sys
from pathlib import Path

NAMES = {"x86_64": "portunus-x86_64", "aarch64": "portunus-aarch64", "arm64": "portunus-aarch64"}


def main() -> None:
    machine = platform.machine()
    carried = Path(__file__).parent / "bin" / NAMES.get(machine, "none")
    program = Path(os.environ.get("PORTUNUS_BINARY") or carried)
    if not program.is_file():
        sys.exit(
            f"portunus: no program for {sys.platform} {machine} at {program}; "
            "install another package of Portunus and set PORTUNUS_BINARY to its path"
        )
    # An installer may drop the right to execute.
    if program == carried and not os.access(program, os.X_OK):
        program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    # The program takes the place of Python, and with it all signals.
    os.execv(program, [str(program), *sys.argv[1:]])
