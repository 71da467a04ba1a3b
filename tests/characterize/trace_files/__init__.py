# SPDX-License-Identifier: Apache-2.0
"""Files of traces: the format, archives, files that appear whole or not at all."""
