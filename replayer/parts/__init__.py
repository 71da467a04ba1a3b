# SPDX-License-Identifier: Apache-2.0
"""What `cut`, `merge` and `repeat` share: what is cached and kept where a part begins, and ids that differ."""
