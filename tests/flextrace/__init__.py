# SPDX-License-Identifier: Apache-2.0
"""The verbs, from their words on the command line to what they print and leave."""
