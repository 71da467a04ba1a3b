# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs have, and what they mean."""
