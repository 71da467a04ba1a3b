# SPDX-License-Identifier: Apache-2.0
"""Runs a command and writes what its vfs_read and vfs_write calls on regular files did, as kprobes see them, with BCC.

python3 bcc_vfs.py PROGRAM-NAME LOG COMMAND...: a line a call: read or write, inode, thread, offset, asked, result.
For Debian's own python3: BCC is in no package index.
"""

import struct
import subprocess
import sys

from bcc import BPF

PROGRAM = """
#include <linux/fs.h>

struct call { u64 inode, asked; loff_t *position; };
struct event { u64 inode, offset, asked; s64 result; u32 thread, is_write; };
BPF_HASH(calls, u64, struct call);
BPF_RINGBUF_OUTPUT(events, 1024);
BPF_ARRAY(lost, u64, 1);

static bool is_wanted(void)
{
	u64 name[2] = {};
	bpf_get_current_comm(name, sizeof(name));
	return name[0] == NAME_BEGINS && name[1] == NAME_ENDS;
}

int begins(struct pt_regs *ctx, struct file *file, char *buffer, size_t asked, loff_t *position)
{
	u64 key = bpf_get_current_pid_tgid();
	struct inode *inode = file->f_inode;
	struct call call = {.inode = inode->i_ino, .asked = asked, .position = position};
	if (is_wanted() && (inode->i_mode & S_IFMT) == S_IFREG)
		calls.update(&key, &call);
	return 0;
}

static int ends(struct pt_regs *ctx, u32 is_write)
{
	u64 key = bpf_get_current_pid_tgid();
	struct call *call = calls.lookup(&key);
	if (!call)
		return 0;
	s64 result = (s64)PT_REGS_RC(ctx);
	struct event event = {.inode = call->inode, .asked = call->asked, .result = result};
	loff_t after = 0;
	event.thread = (u32)key;
	event.is_write = is_write;
	/* Where an appended write went is known only now. */
	bpf_probe_read_kernel(&after, sizeof(after), call->position);
	event.offset = after - (result > 0 ? result : 0);
	calls.delete(&key);
	if (events.ringbuf_output(&event, sizeof(event), 0))
		lost.increment(0);
	return 0;
}

int read_ends(struct pt_regs *ctx) { return ends(ctx, 0); }
int write_ends(struct pt_regs *ctx) { return ends(ctx, 1); }
"""


def main() -> None:
    name, log, *command = sys.argv[1:]
    begins, ends = struct.unpack("=QQ", name.encode().ljust(16, b"\0"))
    bpf = BPF(text=PROGRAM, cflags=["-w", f"-DNAME_BEGINS={begins}ull", f"-DNAME_ENDS={ends}ull"])
    for call in ("read", "write"):
        bpf.attach_kprobe(event=f"vfs_{call}", fn_name="begins")
        bpf.attach_kretprobe(event=f"vfs_{call}", fn_name=f"{call}_ends")
    with open(log, "w") as lines:

        def put(_context, data, _size):
            event = bpf["events"].event(data)
            kind = "write" if event.is_write else "read"
            print(kind, event.inode, event.thread, event.offset, event.asked, event.result, file=lines)

        bpf["events"].open_ring_buffer(put)
        process = subprocess.Popen(command)
        while process.poll() is None:
            bpf.ring_buffer_poll(100)
        bpf.ring_buffer_consume()
    if lost := bpf["lost"][0].value:
        sys.exit(f"bcc_vfs.py: {lost} calls were lost")
    sys.exit(process.returncode)


main()
