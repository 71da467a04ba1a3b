# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs have, or one has many of: what they mean, and which do not go together."""
