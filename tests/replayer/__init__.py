# SPDX-License-Identifier: Apache-2.0
"""Traces made of traces, and Willy's."""
