# SPDX-License-Identifier: Apache-2.0
"""One sentence per number: the definition that every document and report prints beside it (design.md section 4)."""

from __future__ import annotations

DEFINITIONS: dict[str, str] = {
    "request": "a data operation on a regular file or block device that moved at least one byte; sizes are bytes done",
    "request (block)": "a read or write of the block layer that succeeded, with more than 0 bytes; file = device; of "
    "stacked devices (dm, md, loop) only the lowest, so that no byte is counted twice",
    "mmap (data)": "accesses to mapped files are requests of whole pages, as the kernel maps or dirties them; left "
    "out: pages read of files that are mapped as programs (text and libraries) or that are the operating system's own "
    "(below /usr but not /usr/local, /lib, /bin, /sbin, /etc, /nix/store, /gnu/store)",
    "mmap (all)": "every recorded access to a mapped file is a request of whole pages, those of programs too",
    "mmap (none)": "no access to a mapped file is a request",
    # the five
    "uniqueBytes": "bytes in the union of [offset, offset + bytes) over all requests, per file, summed; exact",
    "seqFrac": "share of requests that start where the previous request of the same thread on the same file ended; a "
    "stream's first request is not sequential",
    "seqFrac (block)": "the same with one stream per device: threads have no meaning below the page cache",
    "readFrac": "reads / requests",
    "sizeMean": "bytes / requests",
    "processNum": "largest number of requests in flight at once; one that ends in the nanosecond in which another "
    "starts has ended before; of a trace that has not run, what its maker declared",
    "lower_bounds": "records were lost: uniqueBytes lacks what only they touched, it is at least this; seqFrac is too "
    "low as a rule, since a lost request makes the one behind it look like a jump",
    "from_totals": "records were lost: these are from the totals that the recorder keeps beside its records, exact",
    "estimated_from_totals": "the same, but accesses to mapped files, of which only those to data count, are in them "
    "by the share that their records have; processNum: operations that moved nothing, and accesses to mapped files one "
    "after the other, are in the number that the recorder counted; it is at least what the records show",
    # locality
    "depth": "LRU stack depth: number of distinct other 4 KiB blocks touched since the last reference to a block, in "
    "bytes; a request that touches k blocks makes k references in ascending order",
    "mean_depth_bytes": "mean depth of all references that are not the first to their block",
    "cold_share": "first references to a block / all references",
    "equivalentUniqueBytes": "2 x mean depth: the uniqueBytes of the Willy workload with the same mean depth (3.4.1.1)",
    "miss_ratio": "share of the references that miss in an LRU cache of this size, first references included",
    "miss_ratio_curves": "the same by unit and direction; one stack holds what is read and written; a request "
    "misses unless all of its blocks are held, a byte with its block",
    "sampled": "stack depths are estimated from a sample of the blocks (SHARDS), at this rate, and only the curve "
    "of all references is; the rate is above the one asked for where that gives fewer than about 16384 blocks; null: "
    "exact",
    "reuse": "what was done to a block before: shares of all block references that are the first read or write of it, "
    "or follow a read or a write; time: from the start of the write to that of what follows it",
    # the other definitions of sequential
    "strictOneStream": "share of requests that start where the previous request of the whole trace ended",
    "strictPerDirection": "the same, with reads and writes followed apart",
    "queue32": "share that start where one of the 32 most recently advanced streams ended; any other opens a stream",
    "near32": "share that start at most 128 KiB before or after the end of one of the last 32 requests",
    "darshanSeq": "share that start at or behind the end of their stream's previous request, gaps of any size allowed",
    "sequential_runs": "requests of a stream of which all but the first are sequential: how many, and their bytes",
    # load
    "elapsed_s": "from the begin to the end of the recording; if the header has no times, from the first start to the "
    "last end of any record",
    "time_in_io_s": "time with at least one request in flight (reads and writes only)",
    "time_in_io_share": "time in I/O / elapsed time (thesis, figure 2.3); of a window what of that is within it",
    "in_flight_mean": "mean number of requests in flight while any is",
    "queue_depth_per_thread": "mean number of requests that a thread has in flight while it has any",
    "threads": "threads with at least one request",
    "throughput_bytes_per_s": "bytes / elapsed time",
    "throughput_in_io_bytes_per_s": "bytes / time in I/O",
    "response_time": "from start to end of a request; a quantile is a value that occurred, with at least that share at "
    "or below it, and at most 0.4 % above the smallest such value; exact below 512 ns; count, mean and max are exact; "
    "requests of the block layer whose end was missed (END_UNSEEN) have none",
    "run_delay": "share of the response times in which the thread was ready to run but waited for a processor, as the "
    "kernel counts it (run_delay of /proc/PID/schedstat), to 1/62 of each; syncs: fsync and fdatasync; "
    "measured_share: of which share of these times that is known",
    "inter_arrival_time": "from the start of a request to that of the next one, whatever its thread",
    "inter_sync_time": "from the start of a sync to that of the next one, whatever its thread",
    "time_histogram": "how many response times (read, write, sync), queue, think, inter-arrival and inter-sync times "
    "lie within each power of two of ns; exact",
    "over_time": "windows of equal width over the trace: requests and bytes that start in each, mean number in flight, "
    "working set (distinct 4 KiB blocks)",
    "sync": "fsync, fdatasync, sync_file_range, syncfs, sync, msync with MS_SYNC that succeeded; block layer: flush; "
    "not part of time in I/O",
    "time_in_sync_s": "time with at least one sync in flight",
    "think_time": "from the end of a thread's requests so far to the start of its next one, 0 if that start is "
    "earlier; syncs are within; application's layer only",
    "computing": "share of the think times for which the thread had a processor, each by the part of it since the "
    "thread's recorded call before; the rest it slept or waited; measured_share: of which share of them that is known",
    "waits": "calls before which their thread slept and another traced one woke it, so that they waited for what that "
    "one had done; slept_s: how long they slept since the thread's recorded call before; share: sleep of think times, "
    "each by its request's",
    "littles_law": "sizeMean / (mean think + mean response time) x threads x queue depth per thread (3.4.2), and its "
    "ratio to the measured throughput",
    "files": "how uneven requests are spread: share of the bytes that the busiest file (below: device) has, and the "
    "ten busiest; Gini coefficient: 0 if all have the same, towards 1 if one has all",
    "groups": "the same by process, file, device or window; uniqueBytes, depths and streams are within the group, "
    "fresh and appended bytes those of the trace; a request belongs to the window in which it starts",
    # extended parameters
    "coldFrac": "share of read bytes that were not in the page cache when the trace first touched them: of a recorded "
    "read its missed bytes that nothing touched before; where they were not recorded, the bytes that nothing touched "
    "before, weighted with the share of their file that was not in the page cache at first sight",
    "coldFracMeasuredShare": "share of the read bytes whose misses were recorded or can be so estimated",
    "missFrac": "share of read bytes that came from the device and not from the page cache, as recorded; read ahead "
    "counts for the first read that takes it",
    "cacheHitFrac": "1 - missFrac of the reads that are not under O_DIRECT",
    "appendFrac": "share of written bytes that lie behind the end of their file at that time",
    "overwriteFrac": "1 - appendFrac",
    "syncFrac": "syncs / writes",
    "bytesPerSync": "written bytes / syncs",
    "syncWriteFrac": "share of writes under O_SYNC, O_DSYNC, RWF_SYNC or RWF_DSYNC",
    "directFrac": "share of requests under O_DIRECT; they bypass the page cache",
    "attributedFrac": "share of block bytes that are assigned to the operation that caused them, by their piece or "
    "else by their request",
    "readaheadFrac": "share of block requests that the kernel issued as read-ahead",
    "metadataFrac": "share of block requests marked as metadata of a file system",
    "fuaFrac": "share of block requests that had to reach stable media (FUA)",
    # links
    "by_class": "why block bytes moved: DIRECT I/O, FILL of the page cache, WRITEBACK from it, METADATA and JOURNAL of "
    "a file system, SWAP, UNTRACED (of a program that is not traced), UNKNOWN",
    "direct_and_fill": "DIRECT and FILL bytes; linked: those whose operation is known",
    "writeback": "WRITEBACK bytes; linked: those for which the process that dirtied them last is known",
    "writeback_to_operation": "WRITEBACK bytes; linked: those for which the operation that dirtied them last is known",
    "known_share": "share of the block bytes whose class is not UNKNOWN",
    "readAmplification": "block bytes read, without UNTRACED / bytes that the programs read (all sources, mapped files "
    "as whole pages)",
    "writeAmplification": "block bytes written, without UNTRACED / bytes that the programs wrote (likewise)",
    "queue_time": "from being queued to being issued to the driver, where measured",
}
