# SPDX-License-Identifier: Apache-2.0
"""Facts of this machine to checks: what works here, what does not, and what to do (``flextrace doctor``)."""
