# SPDX-License-Identifier: Apache-2.0
"""One point, on real files and disks too."""
