# SPDX-License-Identifier: Apache-2.0
"""Logs that strace wrote on a terminal, where the first thread has no name until there are others."""

import pytest

import characterize

pytestmark = pytest.mark.parallel


def test_the_last_thread_has_no_name_whoever_it_is(tmp_path):
    """As of a daemon, whose first process ends."""
    path = tmp_path / "log"
    path.write_text(
        '1700000000.000001 open("/a", O_RDONLY) = 3\n'
        "1700000000.000002 clone(flags=SIGCHLD) = 101\n"
        '[pid   101] 1700000000.000003 open("/b", O_RDONLY) = 4\n'
        "[pid   100] 1700000000.000004 exit_group(0) = ?\n"
        "[pid   100] 1700000000.000005 +++ exited with 0 +++\n"
        '1700000000.000006 read(4, "", 20) = 20\n'
        "1700000000.000007 +++ exited with 0 +++\n"
    )
    trace = characterize.open(path)
    assert trace.io[["thread", "process", "result"]].to_numpy().tolist() == [[101, 101, 20]]
    assert trace.paths[trace.io["file"][0]] == "/b"


@pytest.mark.parametrize(
    "of_the_clone",
    [
        ("1700000000.000003 clone(flags=SIGCHLD) = 101",),
        ("1700000000.000003 clone(flagsstrace: Process 101 attached", "=SIGCHLD) = 101"),
        (
            "1700000000.000003 clone(flags=SIGCHLDstrace: Process 101 attached",
            " <unfinished ...>",
            '[pid   101] 1700000000.000004 read(3, "", 1 <unfinished ...>',
            '[pid   101] 1700000000.000005 <... read resumed>"", 1) = 1',
            "[pid   100] 1700000000.000006 <... clone resumed>) = 101",
        ),
    ],
)
def test_the_first_thread_is_the_one_that_no_clone_made(tmp_path, of_the_clone):
    path = tmp_path / "log"
    lines = (
        '1700000000.000001 open("/a", O_RDONLY) = 3',
        '1700000000.000002 read(3, "", 10) = 10',
        *of_the_clone,
        '[pid   101] 1700000000.000007 read(3, "", 20) = 20',
        "[pid   101] 1700000000.000008 clone(flags=SIGCHLD <unfinished ...>",
        '[pid   102] 1700000000.000009 read(3, "", 30) = 30',
        "[pid   101] 1700000000.000010 <... clone resumed>) = 102",
        '[pid   100] 1700000000.000011 read(3, "", 40) = 40',
        "[pid   101] 1700000000.000012 +++ exited with 0 +++",
        '1700000000.000013 read(3, "", 50) = 50',
    )
    path.write_text("\n".join((*lines, "")))
    io = characterize.open(path).io
    threads = list(zip(io["thread"], io["process"], io["result"], strict=True))
    early = [(101, 101, 1)] if len(of_the_clone) > 2 else []
    assert threads == [(1, 1, 10), *early, (101, 101, 20), (102, 102, 30), (1, 1, 40), (1, 1, 50)]
