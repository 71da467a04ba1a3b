# SPDX-License-Identifier: Apache-2.0
"""The recorder: what it sees of programs, files and disks, and what it says of what it has not seen."""
