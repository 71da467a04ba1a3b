# SPDX-License-Identifier: Apache-2.0
"""The programs under test as processes: on terminals, as other users, ended early."""
