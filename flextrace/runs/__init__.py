# SPDX-License-Identifier: Apache-2.0
"""What a long run needs around it: nobody beside it, an end by a signal, a way to go on."""
