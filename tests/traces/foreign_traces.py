# SPDX-License-Identifier: Apache-2.0
"""What other tools write, by hand: texts and records, and what each of the lines has to become."""

import struct

from characterize.layout import BlockOp

READ, WRITE = int(BlockOp.READ), int(BlockOp.WRITE)

# 2007-02-22 17:00:00.000000 UTC is 1172163600 s since 1970 = 128166372000000000 ticks since 1601.
FILETIME = 128_166_372_000_000_000
MSR = (
    f"{FILETIME + 1},usr,0,Read,7014609920,24576,41286\n"
    f"{FILETIME + 23},usr,1,Write,512,1024,7\n"
    f"{FILETIME + 29},src1,0,read,0,512,0\n"
)
ALIBABA = "419,W,8792731648,16384,1577808000000046\n725,R,59110326272,4096,1577808000000146\n"
TENCENT = "1538323200,12910952,128,0,1063\n1538323200,6265688,8,1,1071\n1538323201,12910952,1,0,1063\n"
SPC = "0,20941264,8192,W,0.551706\n1,20939840,8192,r,0.554041\n0,7,3072,w,0.5541\n"
DISKSIM = "0.000000 0 6478 5 0\n13.123456 1 293660 2 1\n2398.617000 0 6478 1 3\n"
MQSIM = "11413000 0 657728 16 1\n11565000 1 31244784 64 0\n"
CLOUDPHYSICS = "version,time,op,size,lbn\n1,10,28,4096,7\n1,10,2a,512,8\n"

# What each line becomes: start in ns, duration in ns, device, sector of 512 bytes, bytes, operation.
EXPECTED = {
    "msr": (
        MSR,
        [
            (1172163600 * 10**9 + 100, 4128600, 1, 13700410, 24576, READ),
            (1172163600 * 10**9 + 2300, 700, 2, 1, 1024, WRITE),
            (1172163600 * 10**9 + 2900, 0, 3, 0, 512, READ),
        ],
    ),
    "alibaba": (
        ALIBABA,
        [
            (1577808000000046000, 0, 419, 17173304, 16384, WRITE),
            (1577808000000146000, 0, 725, 115449856, 4096, READ),
        ],
    ),
    "tencent": (
        TENCENT,
        [
            (1538323200 * 10**9, 0, 1063, 12910952, 65536, READ),
            (1538323200 * 10**9, 0, 1071, 6265688, 4096, WRITE),
            (1538323201 * 10**9, 0, 1063, 12910952, 512, READ),
        ],
    ),
    "spc": (
        SPC,
        [
            (551706000, 0, 0, 20941264, 8192, WRITE),
            (554041000, 0, 1, 20939840, 8192, READ),
            (554100000, 0, 0, 7, 3072, WRITE),
        ],
    ),
    "disksim": (
        DISKSIM,
        [
            (0, 0, 0, 6478, 2560, WRITE),
            (13123456, 0, 1, 293660, 1024, READ),
            (2398617000, 0, 0, 6478, 512, READ),
        ],
    ),
    "mqsim": (MQSIM, [(11413000, 0, 0, 657728, 8192, READ), (11565000, 0, 1, 31244784, 32768, WRITE)]),
    "cloudphysics": (
        CLOUDPHYSICS,
        [(10 * 10**9, 0, 0, 7, 4096, READ), (10 * 10**9, 0, 0, 8, 512, WRITE)],
    ),
}
FIELDS = ["start_ns", "duration_ns", "device", "sector", "bytes", "op"]


def rows_of(trace):
    return list(zip(*(trace.blocks[name].tolist() for name in FIELDS), strict=True))


def made(tmp_path, content, name="x.txt"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def vscsi(version, rows):
    """Records by the layouts of libCacheSim's reader, packed by hand."""
    content = b""
    for number, (command, size, block, time_us, response_us) in enumerate(rows):
        if version == 1:
            content += struct.pack("<IIIHHQQ", number, size, 1, command, 1 << 8 | 5, block, time_us)
        else:
            content += struct.pack("<HHIIIQQQ", command, 2 << 8 | 5, number, size, 1, block, time_us, response_us)
    return content


TABLE = (
    "tid,timestamp_us,volume,op,lba,size,latency_us\n"
    '7,10.5,vol-a,R,8,4096,100\n8,11,"vol,b",Write,16,512,5.25\n7,12,vol-a,discard,0,512,1\n'
)

FIO_LOG = """\
fio version 2 iolog
/dev/sdb add
/data/x add
/dev/sdb open
/data/x open
/dev/sdb read 4096 512
/dev/sdb wait 25 0
/data/x write 0 1024
/data/x sync 0 0
/data/x datasync 0 0
/data/x wait 30 0
/data/x trim 512 512
/data/x close
"""

STRACE_LOG = """\
10 1700000000.000001 openat(AT_FDCWD, "/data/a\\"b\\303\\274", O_RDWR|O_DIRECT|O_DSYNC) = 3 <0.000010>
10 1700000000.000020 read(3, "text) = 9 <0.1>", 100) = 50 <0.000005>
10 1700000000.000030 read(3,  <unfinished ...>
11 1700000000.000031 write(5</data/known>, "x", 7) = 7 <0.000001>
10 1700000000.000040 <... read resumed>"y"..., 70) = 70 <0.000010>
10 1700000000.000050 read(3, 0x7ffe, 100) = -1 EIO (Input/output error) <0.000002>
10 1700000000.000060 fstat(3, {st_mode=S_IFREG|0644, st_size=4321, ...}) = 0 <0.000001>
10 1700000000.000070 preadv2(3, [{iov_base="", iov_len=300}, {iov_base="", iov_len=21}], 2, 1000, 0) = 321 <0.000001>
10 1700000000.000080 fallocate(3, FALLOC_FL_KEEP_SIZE|FALLOC_FL_PUNCH_HOLE, 512, 1024) = 0 <0.000001>
10 1700000000.000090 fcntl(3, F_DUPFD_CLOEXEC, 20) = 20 <0.000001>
10 1700000000.000100 execve("/bin/x", ["x"], 0x7f) = 0 <0.000001>
10 1700000000.000110 read(20, "", 10) = 0 <0.000001>
10 1700000000.000120 read(3, "", 11) = 11 <0.000001>
10 1700000000.000130 --- SIGCHLD {si_signo=SIGCHLD} ---
10 1700000000.000140 recvfrom(9, "...", 3, 0, NULL, NULL) = 3 <0.000001>
10 1700000000.000150 exit_group(0) = ?
10 1700000000.000160 +++ exited with 0 +++
"""
