# SPDX-License-Identifier: Apache-2.0
"""What the recorder writes on Debian's oldest supported kernel, judged by the tests that judge it on this machine's.

Only recording happens in the VM, where Python starts slowly; ``make test-vm`` runs all tests of the recorder inside.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

import characterize
from characterize.layout import BlockOp, IoFlag
from tests.truths.known_io import (  # noqa: F401 (the tests of known_runs)
    operations_of,
    test_a_rename_names_the_new_path_and_unlink_finds_it,
    test_created_files_and_flags,
    test_every_data_operation_is_recorded_exactly,
    test_every_file_operation_is_recorded,
    test_records_of_a_thread_are_in_order_and_ids_unique,
    told,
)
from tests.vm import machine

KERNEL = "6.1"
RUNS = 2
DIRECT_BYTES = 48 * 65536
TIMEOUT_S = 170
COMMAND = f"""
set -e
cd {machine.SCRATCH_IN_VM}
# Straight to a mount that lets no file be mapped for writing (9p without a cache).
record() {{
    {machine.ROOT}/build/flextrace-record -o "{machine.RESULTS_IN_VM}/$1.iotrace" -- "${{@:2}}" \
        >"{machine.RESULTS_IN_VM}/$1.told"
}}
for number in $(seq 0 {RUNS - 1}); do
    mkdir known-$number
    record known-$number {machine.ROOT}/build/tests/known_io {machine.SCRATCH_IN_VM}/known-$number
done
modprobe null_blk
record null_blk dd if=/dev/nullb0 of=/dev/null bs=65536 count={DIRECT_BYTES // 65536} iflag=direct
"""

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the VM is one of x86_64"),
    pytest.mark.skipif(bool(os.environ.get("FLEXTRACE_VM")), reason="runs a VM: not inside of one"),
]


@pytest.fixture(scope="module")
def results() -> Path:
    """The traces of one boot; they and what the VM printed stay in build/vm for whoever looks for a failure."""
    if reason := machine.why_not(KERNEL):
        pytest.skip(reason)
    directory = machine.BUILD / "results" / "test_vm"
    outcome = machine.run(KERNEL, COMMAND, directory, TIMEOUT_S)
    assert outcome.status == 0, outcome.output or outcome.console[-4000:]
    return directory


@pytest.fixture(scope="module")
def known_runs(results) -> list[tuple[characterize.Trace, list[tuple], Path]]:
    return [
        (
            characterize.open(results / f"known-{number}.iotrace"),
            told((results / f"known-{number}.told").read_text()),
            machine.SCRATCH_IN_VM / f"known-{number}",
        )
        for number in range(RUNS)
    ]


def test_the_traces_are_of_that_kernel(known_runs):
    for trace, _, _ in known_runs:
        assert trace.header.metadata["kernel"].startswith(f"{KERNEL}.")


def test_no_offset_of_threads_that_share_a_position_is_worked_out(known_runs):
    """There is no tracepoint for it on that kernel, and what is worked out may be wrong."""
    for trace, _, _ in known_runs:
        assert not (trace.io["flags"] & int(IoFlag.OFFSET_INFERRED)).any()


def test_direct_reads_of_null_blk_are_as_many_block_bytes(results):
    trace = characterize.open(results / "null_blk.iotrace")
    reads = [row for row in operations_of(trace, Path("/dev")) if row[:2] == ("read", "nullb0")]
    assert sum(row[-1] for row in reads) == DIRECT_BYTES
    caused = trace.blocks[trace.blocks["op"] == BlockOp.READ]
    assert caused["bytes"].sum() == DIRECT_BYTES
