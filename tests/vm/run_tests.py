# SPDX-License-Identifier: Apache-2.0
"""Runs what depends on the kernel, on this one and in one VM after another: python -m tests.vm.run_tests KERNEL....

What they found makes docs/support_matrix.md, unless only some of them were asked for.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

from tests.vm import machine
from tests.vm.support_matrix import Kernel, read_results, support_matrix

# What the tests make use of, and which Debian's kernels have as modules.
MODULES = "null_blk nvme nvmet_tcp nvme_tcp scsi_debug sd_mod dm_mod dm_delay dm_flakey raid0 raid1 loop zram xfs btrfs"
REPLAYS = ("engine/test_faults", "engine/test_target_guard", "running/test_confine")
TIMEOUT_S = 4 * 3600
HOST = "host"
RESULTS = machine.BUILD / "results"
MATRIX = machine.ROOT / "docs" / "support_matrix.md"
PYTEST = ".venv/bin/python -m pytest -p no:cacheprovider"


def test_files() -> list[str]:
    """The oracles first: they say the most. The recorder's, the engine's on devices, memory groups."""
    directory = machine.ROOT / "tests"
    replays = [directory / "replayer" / f"{name}.py" for name in REPLAYS]
    files = [*sorted(directory.glob("vm/test_oracle_*.py")), *sorted(directory.glob("bpf/test_*.py")), *replays]
    return [str(path.relative_to(machine.ROOT)) for path in files]


def revision() -> str:
    """The commit that is checked out; with changes to it, none."""
    git = ["git", "-C", str(machine.ROOT)]
    if subprocess.check_output([*git, "status", "--porcelain"], text=True):
        return ""
    return subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)


def results_of(kernel: str, resume: bool) -> Path:
    """Where the results of a kernel go: empty, or with those that earlier runs found of this very commit."""
    directory = RESULTS / kernel
    of = directory / "revision"
    if not (resume and revision() and of.exists() and of.read_text() == revision()):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        of.write_text(revision())
    return directory


def shell_command(results: Path, files: list[str]) -> str:
    """Runs the tests, a file at a time, so that what is found stays though a later one ends the VM."""
    runs = [f"{PYTEST} --junitxml={results}/{Path(file).stem}.xml {file} || status=1" for file in files]
    return "\n".join(["status=0", *runs, "(exit $status)"])


def files_left(results: Path) -> list[str]:
    """Those that have not passed."""
    return [file for file in test_files() if not has_passed(results / f"{Path(file).stem}.xml")]


def has_passed(result: Path) -> bool:
    """Whether a file of tests ran to its end without a failure."""
    suites = list(ElementTree.parse(result).iter("testsuite")) if result.exists() else []
    return bool(suites) and all(suite.get("failures") == "0" == suite.get("errors") for suite in suites)


def run_on_host(resume: bool) -> tuple[bool, str]:
    results = results_of(HOST, resume)
    begin = time.monotonic()
    command = shell_command(results, files_left(results))
    done = subprocess.run(["bash", "-c", command], cwd=machine.ROOT, check=False)
    verdict = "failed" if done.returncode else "passed"
    return done.returncode == 0, f"{HOST:8} {verdict}; {time.monotonic() - begin:.0f} s"


def run_in_vm(version: str, resume: bool, pytest_args: str) -> tuple[bool, str]:
    if reason := machine.why_not(version):
        return False, f"{version:8} not run: {reason}"
    begin = time.monotonic()
    scratch = RESULTS / f"{version}-run"
    results = scratch if pytest_args else results_of(version, resume)
    command = f"{PYTEST} {pytest_args}" if pytest_args else shell_command(machine.RESULTS_IN_VM, files_left(results))
    try:
        outcome = machine.run(version, f"modprobe -a {MODULES}\n{command}", scratch, TIMEOUT_S, live=True)
    finally:
        for found in scratch.glob("*.xml") if results != scratch else []:
            shutil.copy2(found, results)
    if outcome.status is None:
        print(f"the VM with Linux {version} ended before its tests; its console:\n{outcome.console[-4000:]}")
    verdict = "failed" if outcome.status else "passed" if outcome.status == 0 else "ended early"
    return outcome.status == 0, f"{version:8} {verdict}; {time.monotonic() - begin:.0f} s with the boot"


def write_matrix(versions: list[str]) -> None:
    kernels = [Kernel("this host", platform.release().partition("-")[0], read_results(RESULTS / HOST))]
    for version in versions:
        release = machine.BUILD / version / "release"
        if release.exists():
            kernels.append(Kernel(f"Debian {version}", release.read_text().strip(), read_results(RESULTS / version)))
    MATRIX.write_text(support_matrix(kernels, datetime.date.today().isoformat(), "make test-vm"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.vm.run_tests", description="tests on other kernels")
    parser.add_argument("versions", nargs="+", metavar="KERNEL", help="a series that make has put into build/vm: 6.1")
    parser.add_argument("--pytest-args", default="", metavar="ARGUMENTS", help="for pytest, instead of all its tests")
    parser.add_argument("--resume", action="store_true", help="only what has not passed in earlier runs of this commit")
    options = parser.parse_args()
    # As an exception it leaves what was found until then to --resume.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    outcomes = []
    if not options.pytest_args:
        outcomes.append(run_on_host(options.resume))
    outcomes += [run_in_vm(version, options.resume, options.pytest_args) for version in options.versions]
    if not options.pytest_args:
        write_matrix(options.versions)
    print("\n" + "\n".join(line for _, line in outcomes))
    return int(not all(passed for passed, _ in outcomes))


if __name__ == "__main__":
    sys.exit(main())
