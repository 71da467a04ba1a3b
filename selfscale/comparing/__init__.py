# SPDX-License-Identifier: Apache-2.0
"""Turns an application's recording, its replay, Willy and the prediction into one table of all of them."""
