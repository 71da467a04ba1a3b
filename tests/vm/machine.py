# SPDX-License-Identifier: Apache-2.0
"""Runs a shell command on another kernel: in QEMU, over this machine's root file system, which it cannot change.

Without KVM, so that a VM is some ten times slower than the host, and boots in 20 s: where the project is developed that
is kvm_pvm, which emulates a guest's kernel, and fails at an instruction of what unpacks Debian's (seen on 2026-11-30).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BUILD = ROOT / "build" / "vm"
VIRTME = BUILD / "virtme" / "bin"
GUEST = Path(__file__).parent / "guest.sh"
RESULTS_IN_VM = Path("/run/results")  # /run/results in the VM is `results` on the host
SCRATCH_IN_VM = Path("/run/scratch")  # ext4 on a virtio disk: request-based, and forgotten with the VM
SCRATCH_BYTES = 8 << 30
NVME_BYTES = 1 << 30  # /dev/nvme0n1, which belongs to whichever test runs
# The VM ends with the process that runs it, however that ends.
WITH_US = ("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child")
MEMORY = "3G"
CPUS = 2


@dataclass(frozen=True)
class Outcome:
    """What a command in a VM did; `status` is None if the VM ended before the command."""

    status: int | None
    output: str
    console: str


def why_not(version: str) -> str | None:
    """The reason why no VM with this kernel can run here, or None."""
    if missing := [program for program in ("qemu-system-x86_64", "modprobe", "mkfs.ext4") if not shutil.which(program)]:
        return f"no {', '.join(missing)} (make vm)"
    if not (VIRTME / "vng").exists():
        return "virtme-ng is not in build/vm (make vm)"
    if not (BUILD / version / "release").exists():
        log = BUILD / f"{version}.log"
        return f"no Linux {version} in build/vm (make vm): {log.read_text().strip() if log.exists() else ''}"
    return None


def run(version: str, command: str, results: Path, timeout_s: float, live: bool = False) -> Outcome:
    """Boot the kernel of a series and run a bash command in the checkout; it may leave files in RESULTS_IN_VM.

    ``live`` copies the command's output to this process's own as it comes.
    """
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    (results / "command").write_text(command)
    output = results / "output"
    output.touch()
    with (
        _one_at_a_time(),
        _disk(results.parent / f"{results.name}.disk", SCRATCH_BYTES) as scratch,
        _disk(results.parent / f"{results.name}.nvme", NVME_BYTES) as nvme,
        (results / "console").open("w") as console,
    ):
        subprocess.run(["mkfs.ext4", "-q", "-F", scratch], check=True)
        vm = subprocess.Popen(
            [*WITH_US, *_vng(version, results, scratch, nvme)],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PATH": f"{VIRTME}:{os.environ['PATH']}"},
        )
        follower = subprocess.Popen(["tail", "-f", f"--pid={vm.pid}", output]) if live else None
        try:
            vm.wait(timeout_s)
        except subprocess.TimeoutExpired:
            console.write(f"the VM was ended after {timeout_s:.0f} s\n")
        finally:
            vm.kill()
            vm.wait()
            if follower:
                follower.wait()
    status = results / "status"
    return Outcome(
        status=int(status.read_text()) if status.exists() else None,
        output=output.read_text(errors="replace"),
        console=(results / "console").read_text(errors="replace"),
    )


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """A VM takes every CPU there is: a second one waits for its turn, and starts its clock only then."""
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _disk(path: Path, size_bytes: int) -> Iterator[Path]:
    """A sparse file, which is empty again for each VM."""
    try:
        with path.open("wb") as disk:
            disk.truncate(size_bytes)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _vng(version: str, results: Path, scratch: Path, nvme: Path) -> list[str]:
    release = (BUILD / version / "release").read_text().strip()
    # The virtual environment's interpreter lies elsewhere and is as slow to read as the checkout.
    fast = [ROOT, *([Path(sys.base_prefix)] if not Path(sys.base_prefix).is_relative_to("/usr") else [])]
    options = [
        # What is emulated costs: pyarrow's wheels need SSE 4.2 and no more. And whenever QEMU wakes it would poll an
        # event for each queue of virtme-ng's five serial devices, some 400 in all.
        "-cpu Nehalem",
        "-global virtio-serial-pci.ioeventfd=off",
        f"-fsdev local,id=results,path={results.resolve()},security_model=none",
        "-device virtio-9p-pci,fsdev=results,mount_tag=results",
        "-fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
        "-device virtio-9p-pci,fsdev=host,mount_tag=host",
        f"-drive file={scratch.resolve()},if=none,id=scratch,format=raw,cache=unsafe,discard=unmap",
        "-device virtio-blk-pci,drive=scratch",
        f"-drive file={nvme.resolve()},if=none,id=nvme,format=raw,cache=unsafe,discard=unmap",
        "-device nvme,drive=nvme,serial=flextrace",
    ]
    return [
        str(VIRTME / "vng"),
        *("--run", str(BUILD / version / "boot" / f"vmlinuz-{release}")),
        *("--disable-kvm", "--user", "root", "--cpus", str(CPUS), "--memory", MEMORY),
        *("--append", "mitigations=off"),
        *(f"--qemu-opts={option}" for option in options),
        *("--exec", shlex.join(["bash", str(GUEST), *map(str, fast)])),
    ]
