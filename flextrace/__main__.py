# SPDX-License-Identifier: Apache-2.0
"""``python -m flextrace``."""

import sys

from flextrace.main import main

sys.exit(main())
