# SPDX-License-Identifier: Apache-2.0
"""What is imported: by a verb before it begins nothing that is slow and not needed, by a package none above it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import characterize
from tests.made_trace import made_trace, read

pytestmark = pytest.mark.parallel

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


def imported_by(path: Path) -> set[str]:
    """Packages that a file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(path.read_bytes())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


def test_imports_run_one_way():
    packages = ("characterize", "replayer", "selfscale", "flextrace")
    root = Path(characterize.__file__).parents[1]
    against = [
        f"{path.relative_to(root)} imports {above}"
        for place, package in enumerate(packages)
        for path in (root / package).rglob("*.py")
        for above in imported_by(path).intersection(packages[place + 1 :])
    ]
    assert against == []
