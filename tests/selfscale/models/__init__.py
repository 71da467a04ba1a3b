# SPDX-License-Identifier: Apache-2.0
"""Models of a machine, fitted to its points."""
