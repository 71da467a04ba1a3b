# SPDX-License-Identifier: Apache-2.0
"""What a replay by the engine needs around it: its programs, options, files, memory group, recorder."""
