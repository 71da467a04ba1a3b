# SPDX-License-Identifier: Apache-2.0
"""What a verb loads before it begins: nothing that is slow to import and that it does not need."""

import subprocess
import sys

import characterize
from tests.made_trace import made_trace, read

LOADED = (
    "import sys; from flextrace.main import main; assert main(['characterize', sys.argv[1]]) == 0; "
    "print(*sorted(sys.modules), file=sys.stderr)"
)


def test_characterize_loads_only_what_it_needs(tmp_path):
    path = characterize.write(made_trace([read(0, 4096, 10)]), tmp_path / "a.iotrace")
    done = subprocess.run([sys.executable, "-c", LOADED, str(path)], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert {"numba", "pandas"} <= loaded
    assert not loaded & {"scipy", "matplotlib", "plotly", "sklearn", "dask"}


def test_scipy_can_be_imported_behind_the_kernels():
    code = (
        "from characterize.kernel_start import start_kernels; start_kernels(); "
        "from scipy.stats import norm; assert norm.cdf(0) == 0.5; start_kernels()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
