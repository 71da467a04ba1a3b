# SPDX-License-Identifier: Apache-2.0
"""What tests change of the machine for a file system of their own is as it was, also where two do so at once."""

import threading

import pytest

from tests.machines import block_device

pytestmark = pytest.mark.parallel


def test_two_that_mount_xfs_at_once_leave_its_interval_as_it_was(tmp_path, monkeypatch):
    interval = tmp_path / "interval"
    interval.write_text("3000\n")
    monkeypatch.setattr(block_device, "XFS_INTERVAL", interval)
    inside, may_end = threading.Event(), threading.Event()

    def mount_another():
        with block_device.quiet_xfs():
            inside.set()
            may_end.wait()

    other = threading.Thread(target=mount_another)
    with block_device.quiet_xfs():
        assert interval.read_text() == "720000"
        other.start()
        inside.wait(0.3)  # for one that does not wait for its turn
    may_end.set()
    other.join()
    assert interval.read_text() == "3000\n"
