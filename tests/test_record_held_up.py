# SPDX-License-Identifier: Apache-2.0
"""What happens while something holds an operation up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from characterize.layout import Source
from tests.kernel import BTF
from tests.loop_file_system import loop_file_system
from tests.told import PROGRAMS, compare, recorded, run_recorder

THROTTLED = Path("/sys/fs/cgroup/blkio")
READS_PER_SECOND = 40

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="recording needs root"),
    pytest.mark.skipif(not BTF.exists(), reason="this kernel has no BTF"),
]


@pytest.mark.skipif(
    not (THROTTLED / "blkio.throttle.read_iops_device").exists(), reason="needs the blkio controller of version 1"
)
def test_requests_of_a_process_that_has_ended_find_no_room(tmp_path):
    """A thread of the kernel hears of their ends."""
    group = THROTTLED / f"flextrace-test-{os.getpid()}"
    with loop_file_system("ext4", tmp_path) as system:
        group.mkdir()
        try:
            (group / "blkio.throttle.read_iops_device").write_text(f"{system.disk.name} {READS_PER_SECOND}")
            command = f"echo $$ >{group}/cgroup.procs; exec {PROGRAMS}/io_uring {system.place} left"
            done = run_recorder(tmp_path / "t", "sh", "-c", command)
        finally:
            group.rmdir()
    assert done.returncode == 0, done.stderr
    run = recorded(system.place, done.stdout, tmp_path / "t", done.stderr)
    told = [row[:7] for row in run.told_data() if row.source == Source.IO_URING]
    assert len(told) == 32 + 13
    compare(told, [row[:7] for row in run.data({Source.IO_URING})])
