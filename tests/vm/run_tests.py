# SPDX-License-Identifier: Apache-2.0
"""Runs the recorder's tests in one VM after another: python -m tests.vm.run_tests KERNEL...."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from tests.vm import machine

# What the tests make use of, and which Debian's kernels have as modules.
MODULES = "null_blk nvme scsi_debug sd_mod dm_mod dm_delay raid0 raid1 loop zram xfs btrfs"
TIMEOUT_S = 3600


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.vm.run_tests", description="the recorder's tests on other kernels")
    parser.add_argument("versions", nargs="+", metavar="KERNEL", help="a series that make has put into build/vm: 6.1")
    parser.add_argument("--pytest-args", default="", metavar="ARGUMENTS", help="for pytest, instead of all its tests")
    options = parser.parse_args()
    # As an exception it ends the VM as well, which has a session of its own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    tests = options.pytest_args or "tests/vm " + " ".join(
        str(path.relative_to(machine.ROOT)) for path in sorted(machine.ROOT.glob("tests/test_record*.py"))
    )
    command = f"modprobe -a {MODULES}; .venv/bin/python -m pytest -p no:cacheprovider {tests}"
    summary, failed = [], False
    for version in options.versions:
        if reason := machine.why_not(version):
            summary.append(f"{version:8} not run: {reason}")
            failed = True
            continue
        begin = time.monotonic()
        outcome = machine.run(version, command, machine.BUILD / "results" / version, TIMEOUT_S, live=True)
        if outcome.status is None:
            print(f"the VM with Linux {version} ended before its tests; its console:\n{outcome.console[-4000:]}")
        failed |= outcome.status != 0
        last = (outcome.output.strip().splitlines() or ["no output"])[-1].strip("= ")
        summary.append(f"{version:8} {last}; {time.monotonic() - begin:.0f} s with the boot")
    print("\n" + "\n".join(summary))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
