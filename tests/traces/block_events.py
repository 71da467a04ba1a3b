# SPDX-License-Identifier: Apache-2.0
"""Events of the block layer as blktrace writes them, by the documented layout, and as blkparse and perf print them."""

import shutil
import struct

import pytest

needs_blkparse = pytest.mark.skipif(not shutil.which("blkparse"), reason="blkparse is not installed")

# <linux/blktrace_api.h>, by hand
WRITE, FLUSH, SYNC, QUEUE, REQUEUE, ISSUE, COMPLETE = 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7
READ, NOTIFY, AHEAD, META, DISCARD, FUA = 1 << 0, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 15
ACTS = {"Q": (QUEUE, 1), "M": (QUEUE, 2), "G": (QUEUE, 4), "R": (REQUEUE, 6), "D": (ISSUE, 7), "C": (COMPLETE, 8)}
SDA = 8 << 20


def event(time, act, sector, size, bits, *, cpu=0, pid=77, error=0, payload=b"", device=SDA, version=7, order="<"):
    """One ``struct blk_io_trace`` (7) or ``blk_io_trace2`` (8) and its payload."""
    category, number = ACTS[act] if isinstance(act, str) else act
    action = (category | bits) << 16 | number
    magic = 0x65617400 | version
    if version == 7:
        values = (magic, 1, time, sector, size, action, pid, device, cpu, error, len(payload))
        return struct.pack(f"{order}IIQQIIIIIHH", *values) + payload
    values = (magic, 1, time, sector, size, pid, action, device, cpu, error, len(payload), bytes(12))
    return struct.pack(f"{order}IIQQIIQIIHH12s", *values) + payload


def notices(**more):
    name = event(0, (NOTIFY, 0), 0, 0, 0, payload=b"dbench\0\0", **more)
    order = more.get("order", "<")
    clock = event(0, (NOTIFY, 1), 0, 0, 0, pid=0, payload=struct.pack(f"{order}II", 1_700_000_000, 5), **more)
    return name + clock


def two_cpus(**more):
    """What two CPUs saw of five requests, one of them merged of two bios, one requeued, one failed, one unfinished."""
    first = notices(**more)
    first += event(1000, "Q", 800, 4096, READ, **more) + event(1100, "G", 800, 4096, READ, **more)
    first += event(1200, "Q", 808, 512, READ, **more) + event(1300, "M", 808, 512, READ, **more)
    first += event(1500, "D", 800, 4608, READ, **more)
    first += event(3000, "Q", 1600, 8192, WRITE | SYNC, **more) + event(3300, "D", 1600, 8192, WRITE | SYNC, **more)
    first += event(3400, "R", 1600, 8192, WRITE | SYNC, **more) + event(3900, "D", 1600, 8192, WRITE | SYNC, **more)
    second = event(2500, "C", 800, 4608, READ, cpu=1, pid=0, **more)
    second += event(5300, "C", 1600, 8192, WRITE | SYNC, cpu=1, pid=0, **more)
    second += event(5400, "Q", 0, 0, FLUSH, cpu=1, pid=78, **more) + event(
        5410, "D", 0, 0, FLUSH, cpu=1, pid=78, **more
    )
    first += event(5450, "C", 0, 0, FLUSH, pid=0, **more)
    second += event(6000, "D", 4096, 1024, READ | AHEAD | META, cpu=1, pid=79, **more)
    first += event(6007, "C", 4096, 1024, READ | AHEAD | META, pid=0, error=5, **more)
    second += event(7000, "Q", 5000, 512, WRITE, cpu=1, **more) + event(7100, "D", 5000, 512, WRITE, cpu=1, **more)
    return first, second


BLKPARSE = """\
  8,16   1        1     0.000000000  697  Q   W 223490 + 8 [kjournald]
  8,16   1        2     0.000001829  697  G   W 223490 + 8 [kjournald]
  8,16   1        3     0.000003000  697  P   N [kjournald]
  8,16   1        4     0.000004000  697  A  WS 223490 + 8 <- (8,17) 223427
  8,16   1        5     0.000005000  697  U   N [kjournald] 1
  8,16   1        6     0.000005500  697  m   N cfq697 insert_request
  8,16   1        7     0.000006000  697  D   W 223490 + 8 [kjournald]
  8,16   0        8     0.000700013    0  C   W 223490 + 8 [0]
"""

PERF = """\
# comment of perf
    kworker/u8:1-ev   123 [000]   100.000001: block:block_bio_queue: 259,0 WFS 2048 + 16 [kworker/u8:1]
    kworker/u8:1-ev   123 [000]   100.000002: block:block_plug: [kworker/u8:1]
    kworker/u8:1-ev   123 [000]   100.000003: sched:sched_switch: prev_comm=x prev_pid=1
    kworker/u8:1-ev   123 [000]   100.000004: block:block_rq_insert: 259,0 WFS 8192 () 2048 + 16 [kworker/u8:1]
    kworker/u8:1-ev   123 [000]   100.000005: block:block_rq_issue: 259,0 WFS 8192 () 2048 + 16 none,0,0 [kworker/u8:1]
           two words    7/8 [001]   100.000006: block:block_rq_issue: 259,0 R 512 () 8 + 1 [two words]
             swapper     0 [001]   100.000105: block:block_rq_complete: 259,0 WFS () 2048 + 16 none,0,0 [0]
             swapper     0 [001]   100.000107: block:block_rq_complete: 259,0 R () 8 + 1 [-5]
"""
