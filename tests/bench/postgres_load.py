# SPDX-License-Identifier: Apache-2.0
"""pgbench on a PostgreSQL server of our own as a load: the whole server is traced, the client is not."""

from __future__ import annotations

import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.load import Load, Result, UnavailableError

SCALE = 10  # 1,000,000 accounts, 150 MB
CLIENTS = 4
START_SECONDS_MAX = 60
# No TCP; and no checkpoint by time in the middle of one run but not of the next.
SETTINGS = {"listen_addresses": "", "checkpoint_timeout": "1h", "max_wal_size": "8GB"}
FEW_BUFFERS = {"shared_buffers": "16MB"}
TOUCH_SECONDS = 5


def programs() -> Path:
    """Directory of the newest installed server's programs."""
    if found := sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3])):
        return found[-1].parent
    raise UnavailableError("PostgreSQL is not installed (Debian package postgresql)")


def server_user() -> dict[str, Any]:
    """As whom to start the server, which refuses to run as root."""
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = names.get("postgres") or names["nobody"]
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def result_of(output: str) -> Result:
    """From pgbench's report."""
    transactions = re.search(r"transactions actually processed: (\d+)", output).group(1)  # type: ignore[union-attr]
    rate = re.search(r"tps = ([\d.]+)", output).group(1)  # type: ignore[union-attr]
    return Result(float(rate), int(transactions))


@contextmanager
def server(place: Path, more_settings: dict[str, str]) -> Iterator[int]:
    """A new cluster in a directory that is made, its socket there too; the process id of its postmaster."""
    user = server_user()
    place.mkdir()
    shutil.chown(place, user["user"], user["group"])
    cluster = place / "cluster"
    initdb = [str(programs() / "initdb"), "-D", str(cluster), "-U", "postgres", "--auth=trust", "--no-sync"]
    subprocess.run(initdb, check=True, capture_output=True, cwd=place, **user)
    settings = [word for name, value in (SETTINGS | more_settings).items() for word in ("-c", f"{name}={value}")]
    with (place / "server.log").open("w") as log:
        postmaster = subprocess.Popen(
            [programs() / "postgres", "-D", cluster, "-k", place, *settings], stdout=log, stderr=log, cwd=place, **user
        )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while subprocess.run([programs() / "pg_isready", "-q", "-h", place], check=False).returncode:
            if postmaster.poll() is not None or time.monotonic() > deadline:
                raise UnavailableError(f"PostgreSQL did not start: {(place / 'server.log').read_text()}")
            time.sleep(0.1)
        yield postmaster.pid
    finally:
        postmaster.send_signal(signal.SIGINT)  # its fast shutdown
        postmaster.wait()
        shutil.rmtree(place)


@contextmanager
def postgres_load(directory: Path, seconds: float, touched: bool = False) -> Iterator[Load]:
    """pgbench's transactions like TPC-B, its default; touched: into few buffers, each of which has been used before."""
    place = directory / "postgres"
    with server(place, FEW_BUFFERS if touched else {}) as postmaster:
        client = [str(programs() / "pgbench"), "-h", str(place), "-U", "postgres"]
        subprocess.run([*client, "-i", "-s", str(SCALE), "postgres"], check=True, capture_output=True)
        if touched:
            subprocess.run([*client, "-T", str(TOUCH_SECONDS), "postgres"], check=True, capture_output=True)
        yield Load(
            f"PostgreSQL, pgbench, scale {SCALE}, {CLIENTS} clients{', touched buffers' if touched else ''}",
            "transactions",
            5,
            [*client, "-c", str(CLIENTS), "-T", str(max(round(seconds), 1)), "postgres"],
            result_of,
            server=postmaster,
        )
