# SPDX-License-Identifier: Apache-2.0
"""From a model to an application's times, and how far they may be off."""
