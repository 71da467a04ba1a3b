# SPDX-License-Identifier: Apache-2.0
"""What is imported: by a verb before it begins nothing that is slow and not needed, by a package none above it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import characterize
from tests.traces.made_trace import made_trace, read

pytestmark = pytest.mark.parallel

ROOT = Path(characterize.__file__).parents[1]
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
    """Modules that a file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(path.read_bytes())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def against_the_way(inside: str, *steps: set[str]) -> list[str]:
    """Files of the packages inside of one ("": of all) that import what stands in a later step."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for place, step in enumerate(steps)
        for package in step
        for path in (ROOT / inside / package).rglob("*.py")
        for name in imported_by(path)
        if name.removeprefix(f"{inside}.").partition(".")[0] in set().union(*steps[place + 1 :])
    ]


def test_imports_run_one_way():
    assert against_the_way("", {"characterize"}, {"replayer"}, {"selfscale"}, {"flextrace"}) == []


def test_what_is_measured_decides_what_is_explored_and_not_the_other_way_round():
    known = {"profiles", "models", "simulation"}
    steps = ({"measuring"}, known, {"exploring"}, {"predicting"}, {"comparing"}, {"reporting"})
    assert against_the_way("selfscale", *steps) == []
    assert set().union(*steps) == {path.parent.name for path in (ROOT / "selfscale").glob("*/__init__.py")}
