# SPDX-License-Identifier: Apache-2.0
"""Which formats of other tools there are, and which of them a file has."""

from __future__ import annotations

import importlib
from pathlib import Path

from characterize.errors import FlextraceError
from characterize.formats.compressed import head_of
from characterize.formats.reading import FILETIME, Format

HEAD_BYTES = 64 << 10
ANY_TABLE = "csv"
"""What a file is only if it is nothing else: other formats may have a line of column names, too."""
FORCED = "by --input-format of 'flextrace import' or 'flextrace characterize'"

FORMATS = {
    it.name: it
    for it in (
        Format(
            "cloudphysics",
            "CloudPhysics CSV: version, time (s), SCSI opcode (hex), bytes, block",
            "cloudphysics",
            sector_bytes=512,
            time_unit="s",
        ),
        Format("vscsi", "CloudPhysics vSCSI binary, versions 1 and 2 (us)", "vscsi", sector_bytes=512, time_unit="us"),
        Format(
            "msr",
            "MSR Cambridge / SNIA CSV: Windows file time, host, disk, Read|Write, offset, bytes, response time",
            "msr",
            time_unit=FILETIME,
            wall_clock=True,
        ),
        Format(
            "alibaba",
            "Alibaba CSV: device, R|W, offset, bytes, time (us since 1970)",
            "alibaba",
            time_unit="us",
            wall_clock=True,
        ),
        Format(
            "tencent",
            "Tencent CSV: time (s since 1970), sector, sectors, 0 read | 1 write, volume",
            "tencent",
            sector_bytes=512,
            time_unit="s",
            wall_clock=True,
        ),
        Format("spc", "SPC: unit, block, bytes, R|W, time (s)", "spc", sector_bytes=512, time_unit="s"),
        Format(
            "disksim",
            "DiskSim ASCII: arrival (ms), device, block, blocks, flags (1 = read)",
            "disksim",
            sector_bytes=512,
            time_unit="ms",
        ),
        Format(
            "mqsim",
            "MQSim: arrival (ns), device, sector, sectors, 1 read | 0 write",
            "mqsim",
            sector_bytes=512,
            time_unit="ns",
        ),
        Format(
            "blktrace",
            "blktrace binary (ns): one file of each CPU, all beside FILE are read, or blkparse -d",
            "blktrace",
        ),
        Format("blkparse", "text of blkparse (s)", "blkparse"),
        Format("perf", "perf script of block:block_rq_issue, block_rq_complete, ... (s)", "perf_script"),
        Format(
            "fio",
            "fio iolog: version 3 (us), version 2 (waits in ms; without them an order only)",
            "fio_iolog_reader",
            records="file",
            time_unit="us",
        ),
        Format("strace", "strace -f -ttt -T (-y): operations of programs on files", "strace", "file", wall_clock=True),
        Format(
            "csv",
            "CSV with a line of column names: start (or time, timestamp; _ns, _us, _ms, _s), op, offset or sector, "
            "bytes or sectors, and device or path, duration, thread, ...",
            "csv_table",
            sector_bytes=512,
            time_unit="s",
            named_columns=True,
        ),
        Format(
            "parquet",
            "Parquet with such columns",
            "parquet_table",
            sector_bytes=512,
            time_unit="s",
            named_columns=True,
        ),
    )
}


def found_format(path: Path) -> Format:
    """The one format that a file's content looks like.

    Raises
    ------
    FlextraceError
        It looks like none, or like more than one; the message says what was looked for.
    """
    head = head_of(path, HEAD_BYTES)
    found = [form for form in FORMATS.values() if form.name != ANY_TABLE and _looks_like(form, head)]
    if not found and _looks_like(FORMATS[ANY_TABLE], head):
        return FORMATS[ANY_TABLE]
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(it.name for it in found)
        raise FlextraceError(f"{path} looks like {names}: say which {FORCED}", 2)
    if not head:
        raise FlextraceError(f"{path} is empty: no trace was written into it")
    begin = head.splitlines()[0][:60] if head.strip() else b""
    looked = "\n".join(f"  {it.name:<12} {it.about}" for it in FORMATS.values())
    raise FlextraceError(
        f"{path} is not a flextrace trace, and no trace of another tool that is known: it begins with {begin!r}. "
        f"Looked for\n{looked}\nIf it is one of these, force it {FORCED}, and the first wrong line is named; name "
        "the columns of another table by --columns there ('flextrace import --help')"
    )


def table_format(path: Path) -> Format:
    """The format of a table whose columns are named by --columns."""
    is_parquet = _looks_like(FORMATS["parquet"], head_of(path, HEAD_BYTES))
    return FORMATS["parquet" if is_parquet else ANY_TABLE]


def _looks_like(form: Format, head: bytes) -> bool:
    return importlib.import_module(f"characterize.formats.{form.module}").looks_like(head)
