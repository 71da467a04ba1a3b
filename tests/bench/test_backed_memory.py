# SPDX-License-Identifier: Apache-2.0
"""How much free memory is touched before a run, by hand and on this machine."""

import os

from tests.bench.backed_memory import BACKED_BYTES, BUDDYINFO, back_free_memory, pieces_bytes

TABLE = """\
Node 0, zone    DMA32      2      3      0      2      3      2      1      4      4      2    752
Node 0, zone   Normal      1      0      0      0      0      0      0      0      1    100   3150
"""


def test_only_pieces_smaller_than_a_block_count():
    pages = 2 + 3 * 2 + 2 * 8 + 3 * 16 + 2 * 32 + 64 + 4 * 128 + 4 * 256 + 1 + 256
    assert pieces_bytes(TABLE, 4096) == 4096 * pages


def test_no_more_than_half_of_what_is_free_is_touched_and_all_given_back():
    page_bytes = os.sysconf("SC_PAGESIZE")
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * page_bytes
    touched = back_free_memory()
    assert min(BACKED_BYTES, 0.4 * free_bytes) < touched < 0.6 * free_bytes
    assert os.sysconf("SC_AVPHYS_PAGES") * page_bytes > 0.8 * free_bytes
    assert pieces_bytes(BUDDYINFO.read_text(), page_bytes) < free_bytes
