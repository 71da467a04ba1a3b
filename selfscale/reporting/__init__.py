# SPDX-License-Identifier: Apache-2.0
"""Turns documents into figures and sections of the report, which `selfscale.report` puts together."""
