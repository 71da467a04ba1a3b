# SPDX-License-Identifier: Apache-2.0
"""From a trace and a machine's costs to the times that its requests would take there: operations -> cache -> times."""
