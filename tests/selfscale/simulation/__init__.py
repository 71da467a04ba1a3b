# SPDX-License-Identifier: Apache-2.0
"""An application on a simulated machine."""
