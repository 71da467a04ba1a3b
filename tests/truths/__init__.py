# SPDX-License-Identifier: Apache-2.0
"""What really happened, told by others: strace, programs, the kernel's counters, naive implementations."""
