# SPDX-License-Identifier: Apache-2.0
"""Threads that hand pages of a file on to each other: each reads what the one before has just written, under a lock.

    relay.py DIRECTORY THREADS ROUNDS

Every round makes, fills, moves and removes a file of its own, too, by turns. Prints how many operations there were.
"""

import os
import sys
import threading
from pathlib import Path

BYTES = 4099  # a prime: pieces overlap pages


def run(directory: Path, threads: int, rounds: int) -> None:
    descriptor = os.open(directory / "pages", os.O_RDWR | os.O_CREAT)
    turn, changed = [0], threading.Condition()

    def work(number: int) -> None:
        for step in range(number, rounds * threads, threads):
            with changed:
                changed.wait_for(lambda step=step: turn[0] == step)
                os.pread(descriptor, BYTES, (step - 1) % 7 * BYTES)
                os.pwrite(descriptor, bytes(BYTES), step % 7 * BYTES)
                name = directory / f"round{step // threads}"
                if number == 0:
                    name.write_bytes(bytes(BYTES))
                elif number == 1:
                    name.rename(name.with_suffix(".moved"))
                elif number == 2:
                    name.with_suffix(".moved").unlink()
                turn[0] += 1
                changed.notify_all()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    os.close(descriptor)


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
