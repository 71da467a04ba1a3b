# SPDX-License-Identifier: Apache-2.0
"""Block requests whose end no program saw (docs/decisions/0006), made by telling the recorder that they still run."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

import characterize
from characterize.layout import BlockFlag, BlockOp
from tests.machines.block_device import loop_device
from tests.truths.straced import needs_strace
from tests.truths.told import RECORDER, run_recorder, without_map_iterators

READ_BYTES = 4096
SECTORS = 8 * 1009  # of the reads, from one to the next; no other program reads there
READS = 5
ISSUED = 2  # enum request_phase of bpf/block_requests.bpf.c
DEVICE_BYTES = 64 << 20

pytestmark = pytest.mark.records


def bpftool(*arguments: str) -> list | dict:
    done = subprocess.run(["bpftool", "-j", *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout) if done.stdout.strip() else {}


def phase_byte(map_id: int) -> int:
    """Where a request's phase lies in the entry of the map, by the types that the map carries."""
    types = bpftool("btf", "dump", "map", "id", str(map_id), "value")["types"]
    (state,) = (each for each in types if each["name"] == "request_state")
    (bits,) = (member["bits_offset"] for member in state["members"] if member["name"] == "phase")
    return bits // 8


def make_unended(device_number: int) -> set[int]:
    """The sectors of the ended reads of a device that the recorder now takes for running ones."""
    map_id = max(each["id"] for each in bpftool("map", "show") if each.get("name") == "requests")
    at, sectors = phase_byte(map_id), set()
    for entry in bpftool("map", "dump", "id", str(map_id)):
        state = entry["formatted"]["value"]
        if state["device"] != device_number or state["phase"] or state["bytes"] != READ_BYTES:
            continue
        value = [*entry["value"]]
        value[at] = f"0x{ISSUED:02x}"
        bpftool("map", "update", "id", str(map_id), "key", *entry["key"], "value", *value)
        sectors.add(state["sector"])
    return sectors


def test_what_ended_unseen_last_is_recorded(tmp_path):
    """Nothing gives their requests out again: the recorder has to look for them before it ends."""
    trace_path, ready, go = (tmp_path / name for name in ("trace", "ready", "go"))
    os.mkfifo(ready)
    os.mkfifo(go)
    with loop_device(tmp_path / "image", DEVICE_BYTES) as device:
        reads = "; ".join(
            f"dd if={device.path} of=/dev/null bs={READ_BYTES} count=1 skip={i * SECTORS // 8} iflag=direct"
            for i in range(1, READS + 1)
        )
        recorder = subprocess.Popen(
            [RECORDER, "-o", trace_path, "--", "sh", "-ec", f"{reads}; echo > {ready}; read line < {go}"],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            ready.read_text()
            unended = make_unended(device.number)
            go.write_text("\n")
            said = recorder.communicate(timeout=60)[1]
        finally:
            recorder.kill()
            recorder.wait()
        trace = characterize.open(trace_path)
    if without_map_iterators(said) != said:
        pytest.skip("this kernel lets nobody load an iterator over a map, by which the recorder looks for them")
    blocks = trace.blocks[(trace.blocks["device"] == device.number) & (trace.blocks["op"] == BlockOp.READ)]
    blocks = blocks[blocks["sector"].isin([i * SECTORS for i in range(1, READS + 1)])]
    unseen = blocks[(blocks["flags"].to_numpy() & int(BlockFlag.END_UNSEEN)) != 0]
    assert unended
    # Each was recorded when it ended, and those of the trick a second time.
    assert len(blocks) == READS + len(unended)
    assert set(unseen["sector"]) == unended
    assert (unseen["bytes"] == READ_BYTES).all()
    assert trace.header.metadata["ends_unseen"] == len(unended)
    assert f"the end of {len(unended)} block request" in said


@needs_strace
def test_a_kernel_that_lets_nobody_look_for_them_is_asked_before_all_else(tmp_path):
    """Behind the others its answer would cost loading them twice."""
    done = run_recorder(tmp_path / "t", "true", before=["strace", "-e", "trace=bpf", "-o", tmp_path / "calls"])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "calls").read_text().count('prog_name="block_bio_queue"') == 1
