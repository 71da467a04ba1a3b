# SPDX-License-Identifier: Apache-2.0
"""The verb fit: tables of measurements whose law is known, and tables with faults."""

import csv
import json
import math
import random

import numpy as np
import pytest

from characterize.errors import FlextraceError
from characterize.workload import Workload
from flextrace.main import main
from selfscale.measure import Point
from selfscale.models import make_model
from selfscale.predict import Predictor
from selfscale.profile import Profile
from selfscale.profiles.table import read_table
from selfscale.profiles.table_columns import REQUESTS, THROUGHPUT, column_of
from selfscale.profiles.table_profile import profile_of

pytestmark = pytest.mark.parallel


def law(size_bytes: float, processes: float, depth: float) -> float:
    """Bytes per s: a product of single parameter functions."""
    return 3e7 * (size_bytes / 4096) ** 0.5 * processes**0.8 * (1 + depth / 8)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """60 random workloads with one parameter beyond the five, and a column of text."""
    generator = random.Random(3)
    path = tmp_path_factory.mktemp("table") / "t.csv"
    with path.open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["size_mean_kib", "processNum", "depth", "host", "throughput_mb_per_s"])
        for _ in range(60):
            size, processes, depth = generator.choice([4, 8, 16, 64]), generator.randint(1, 16), generator.randint(1, 7)
            throughput = law(size * 1024, processes, depth) * math.exp(generator.gauss(0, 0.01))
            rows.writerow([size, processes, depth, "one", f"{throughput / 1e6:.4f}"])
    return path


@pytest.fixture(scope="module")
def fitted(table, tmp_path_factory):
    output = tmp_path_factory.mktemp("fitted") / "p.json"
    assert main(["fit", str(table), "-o", str(output)]) == 0
    return output


@pytest.mark.parametrize(
    ("name", "expected", "factor"),
    [
        ("uniqueBytes", "uniqueBytes", 1),
        ("unique_bytes_mib", "uniqueBytes", 1 << 20),
        ("uniqueBytes (MB)", "uniqueBytes", 1e6),
        ("sizeMean_KiB", "sizeMean", 1024),
        ("size mean [kB]", "sizeMean", 1000),
        ("readFrac %", "readFrac", 0.01),
        ("seq_frac_percent", "seqFrac", 0.01),
        ("process_num", "processNum", 1),
        ("throughput_bytes_per_s", THROUGHPUT, 1),
        ("throughput MiB/s", THROUGHPUT, 1 << 20),
        ("throughput_mb_per_s", THROUGHPUT, 1e6),
        ("Throughput (MB/s)", THROUGHPUT, 1e6),
        ("IOPS", REQUESTS, 1),
        ("ops/s", REQUESTS, 1),
        ("requests_per_second", REQUESTS, 1),
        ("IO/sec", REQUESTS, 1),
        ("readLatency", "readLatency", 1),
    ],
)
def test_names_of_columns(name, expected, factor):
    column = column_of(name)
    assert (column.name, column.factor) == (expected, factor)


@pytest.mark.parametrize(
    "name",
    [
        "throughput",
        "throughput_furlongs",
        "throughput_mbit_per_s",
        "throughput (Mb/s)",
        "bandwidth_Gb_per_s",
        "sizeMean (Kb)",
        "size_mean_pages",
    ],
)
def test_an_unknown_unit_is_an_error(name):
    with pytest.raises(FlextraceError, match="unit of column"):
        column_of(name)


def test_the_law_is_found(fitted):
    profile = Profile.load(fitted, tables=True)
    workload = Workload(math.nan, math.nan, math.nan, 16384.0, 6.0)
    for model in ("additive", "pairwise", "smooth"):
        prediction = Predictor(profile, model, {"depth": 5.0}).predict(workload)
        assert prediction.throughput_bytes_per_s == pytest.approx(law(16384, 6, 5), rel=0.03)
        assert prediction.interval_low < law(16384, 6, 5) < prediction.interval_high
        assert prediction.inside_range


def test_cross_validation_prints_the_error_of_every_model(table, tmp_path, capsys):
    assert main(["fit", str(table), "-o", str(tmp_path / "p.json"), "--cross-validate"]) == 0
    captured = capsys.readouterr()
    document = json.loads((tmp_path / "p.json").read_text())
    assert document["schema"] == "flextrace.profile/1"
    for score in document["models"]["scores"]:
        assert f"{score['errors']['median']:.1%}" in captured.out
        assert score["errors"]["median"] < 0.03
    assert {score["model"] for score in document["models"]["scores"]} == {"additive", "pairwise", "smooth"}
    assert f"{document['models']['best']} (used)" in captured.out
    assert "60 measurements" in captured.out
    assert "'host' holds no number: left out" in captured.out
    assert "--set depth=" in captured.err


def test_predict_takes_medians_and_says_so(table, fitted, capsys):
    options = ["predict", str(fitted), "--size-mean", "16K", "--process-num", "6"]
    assert main([*options, "--read-frac", "0.5", "--format", "json"]) == 0
    (first,) = json.loads(capsys.readouterr().out)["predictions"]
    workloads = {(row["size_mean_kib"], row["processNum"], row["depth"]) for row in csv.DictReader(table.open())}
    median = float(np.median([float(depth) for _, _, depth in workloads]))
    assert first["throughput_bytes_per_s"] == pytest.approx(law(16384, 6, median), rel=0.03)
    assert any(f"depth {median:.4g}" in note for note in first["notes"])
    assert any("without influence: readFrac" in note for note in first["notes"])
    assert main([*options, "--set", "depth=70"]) == 0
    assert "depth is 63 away from the largest measured" in capsys.readouterr().out
    assert main([*options, "--set", "width=2"]) == 2
    assert "no such parameter (others than the five: depth)" in capsys.readouterr().err
    assert main([*options, "--set", "depth=deep"]) == 2
    assert main(["predict", str(fitted), "--size-mean", "16K"]) == 2
    assert "add --process-num" in capsys.readouterr().err


def test_what_never_changed_is_outside_where_it_is_another(tmp_path, capsys):
    rows = [f"4,{count},{10 * count}" for count in range(1, 21)]
    path = written(tmp_path / "t.csv", "size_mean_kib,process_num,throughput_mb_per_s", *rows)
    assert main(["fit", str(path), "-o", str(tmp_path / "p.json")]) == 0
    capsys.readouterr()
    for size, outside in (("4K", []), ("1M", ["sizeMean"])):
        words = ["predict", str(tmp_path / "p.json"), "--size-mean", size, "--process-num", "3", "--format", "json"]
        assert main(words) == 0
        (prediction,) = json.loads(capsys.readouterr().out)["predictions"]
        assert (prediction["inside_range"], prediction["outside"]) == (not outside, outside)
        assert any("sizeMean is 256 times the largest" in note for note in prediction["notes"]) == bool(outside)


def test_rows_that_can_be_fitted_but_not_left_out_are_too_few(tmp_path, capsys):
    rows = [f"{4 << at % 2},{1 + at // 2 % 2},{1 + at // 4},{10 + at}" for at in range(8)]
    path = written(tmp_path / "t.csv", "size_mean_kib,process_num,depth,throughput_mb_per_s", *rows)
    assert main(["fit", str(path), "-o", str(tmp_path / "p.json")]) == 1
    assert "8 points are too few to leave 2 of them out" in capsys.readouterr().err


def test_what_the_product_form_lacks_in_a_table_is_told(tmp_path, capsys):
    """Of one parameter that varies there is no curve left without the one row through which it goes."""
    rows = [f"{at},0.5,0.5,4,1,{100 - at}" for at in range(1, 13)]
    names = "unique_bytes_mib,seq_frac,read_frac,size_mean_kib,process_num,throughput_mb_per_s"
    path = written(tmp_path / "t.csv", names, *rows)
    assert main(["fit", str(path), "-o", str(tmp_path / "p.json"), "--cross-validate"]) == 0
    told = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("  product"))
    assert "no region's focal vector was measured; measure more, of a machine with 'flextrace scale --resume'" in told


def test_other_verbs_refuse_the_profile_of_a_table(fitted):
    with pytest.raises(FlextraceError, match="not of a machine"):
        Profile.load(fitted)


def written(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


HEADER = "read_frac,size_mean,throughput_mb_per_s"


@pytest.mark.parametrize(
    ("cell", "line", "said"),
    [
        ("n/a,4096,10", 3, "column 'read_frac': 'n/a' is not a share"),
        ("0.5,,10", 3, "column 'size_mean': the cell is empty"),
        ("0.5,4096,-1", 3, "column 'throughput_mb_per_s': '-1' is not a number above 0"),
        ("0.5,4096,nan", 3, "'nan' is not a number above 0"),
        ("7,4096,10", 3, "'7' is not a share"),
        ("0.5,1e200,10", 3, "column 'size_mean': '1e200' is not a size above 0, up to 1e+100"),
        ("0.5,4096", 3, "2 cells where the first line names 3 columns"),
    ],
)
def test_a_bad_cell_is_named_or_skipped(tmp_path, capsys, cell, line, said):
    good = [f"{number / 20},{4096 * (1 + number % 3)},{10 + number}" for number in range(20)]
    path = written(tmp_path / "t.csv", HEADER, good[0], cell, *good[1:])
    assert main(["fit", str(path), "-o", str(tmp_path / "p.json")]) == 1
    error = capsys.readouterr().err
    assert f"line {line}" in error
    assert said in error
    assert "--skip-bad" in error
    assert not (tmp_path / "p.json").exists()
    assert main(["fit", str(path), "-o", str(tmp_path / "p.json"), "--skip-bad"]) == 3
    captured = capsys.readouterr()
    assert "20 measurements of 20 workloads, lines left out: 1" in captured.out
    assert said in captured.err


def test_a_number_that_no_model_can_square_is_named(tmp_path, capsys):
    rows = [f"{4096 * (1 + number % 3)},{number},{10 + number}" for number in range(20)]
    path = written(tmp_path / "t.csv", "size_mean,depth,throughput_mb_per_s", *rows, "4096,1e200,10")
    words = ["fit", str(path), "-o", str(tmp_path / "p.json")]
    assert main(words) == 1
    assert "line 22, column 'depth': '1e200' is not a number up to 1e+100" in capsys.readouterr().err
    assert main([*words, "--skip-bad"]) == 3
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "p.json"), "--size-mean", "4K", "--set", "depth=1e200"]) == 2
    assert "--set depth=1e200: give NAME=VALUE with a number up to 1e+100" in capsys.readouterr().err


def test_of_a_quote_that_is_never_closed_only_the_begin_is_shown(tmp_path, capsys):
    rows = [f"0.5,4096,{10 + number}" for number in range(200)]
    path = written(tmp_path / "t.csv", HEADER, '0.5,4096,"7', *rows)
    assert main(["fit", str(path), "-o", str(tmp_path / "p.json")]) == 1
    error = capsys.readouterr().err
    assert "column 'throughput_mb_per_s': '7\\n0.5,4096,10" in error
    assert len(error) < 300


def test_a_parameter_that_differs_in_one_row_only(tmp_path, capsys):
    """The fold that leaves the row out has a parameter less."""
    rows = [
        f"{4 << at % 4},{1 + at // 4},{2 if at == 7 else 1},{10 * 2 ** (at % 4) * (1 + at // 4)}" for at in range(20)
    ]
    path = written(tmp_path / "t.csv", "size_mean_kib,process_num,depth,throughput_mb_per_s", *rows)
    assert main(["fit", str(path), "-o", str(tmp_path / "p.json"), "--cross-validate"]) == 0
    assert "smooth" in capsys.readouterr().out


def test_single_rows_are_not_taken_for_noise(tmp_path):
    """A cliff that straight lines do not follow: rows that nobody repeated are as good as what they show."""
    sizes = [4 << at for at in range(12)]
    rows = [f"{size},{count},{(100 if size < 256 else 10) * count}" for size in sizes for count in (1, 2, 4)]
    path = written(tmp_path / "t.csv", "size_mean_kib,process_num,throughput_mb_per_s", *rows)
    profile = profile_of(read_table(path))
    points = profile.measured
    table = make_model("smooth").fit(points, []).predict([point.workload for point in points])
    ratio = table["throughput_bytes_per_s"] / [point.throughput_bytes_per_s for point in points]
    assert np.abs(np.log(ratio)).max() < 0.1


@pytest.mark.parametrize("name", ["smooth", "learned"])
def test_of_a_large_table_a_gaussian_process_learns_a_part(name, monkeypatch):
    """Its memory grows with the square of the rows: 3.2 GB of 20,000, several times."""
    monkeypatch.setattr("selfscale.models.measured.PROCESS_POINTS_MAX", 60)
    generator = random.Random(5)
    workloads = [
        Workload(1e6 * 10 ** generator.uniform(0, 3), generator.random(), 0.5, 4096.0 * size, 1.0 + size % 4)
        for size in range(1, 301)
    ]
    points = [Point(w, law(w.size_mean, w.process_num, 8 * w.seq_frac), math.inf, role="table") for w in workloads]
    model = make_model(name).fit(points, [])
    assert len(model._process.X_train_) == 60
    table = model.predict(workloads)
    assert len(table["points_used"][0]) == 300  # the formula, or the straight lines, learn from all
    ratio = table["throughput_bytes_per_s"] / [point.throughput_bytes_per_s for point in points]
    assert np.median(np.abs(np.log(ratio))) < 0.1


def test_units_in_cells_other_delimiters_and_repeats(tmp_path):
    path = written(
        tmp_path / "t.csv",
        "\ufeffbs;mix;IOPS;constant",
        *(f"4KiB;{mix}%;{rate};3" for mix in range(10) for rate in (100, 200)),
        "",
    )
    table = read_table(path, {"size_mean": "bs", "read_frac": "mix"})
    assert table.names == ["readFrac", "sizeMean"]
    assert table.rows == 20
    assert table.values[:, 0] == pytest.approx([mix / 100 for mix in range(10)])
    assert table.throughput == pytest.approx([150 * 4096] * 10)
    # Two values that differ by d have a standard deviation of d / sqrt(2), their mean d / 2.
    assert table.half_width_95 == pytest.approx([1.959964 * 50 * 4096] * 10)
    assert "column 'constant' never changes: left out" in table.said


def test_of_throughput_and_requests_per_second_the_throughput_counts_and_it_is_said(tmp_path):
    rows = [f"{number / 10},4096,{100 + number},-" for number in range(9)]
    table = read_table(written(tmp_path / "t.csv", "read_frac,size_mean,throughput_mb_per_s,IOPS", *rows))
    assert table.throughput == pytest.approx([1e6 * (100 + number) for number in range(9)])
    assert table.said == ["column 'IOPS' is left out for 'throughput_mb_per_s'"]


def test_the_delimiter_is_that_of_the_first_line_that_is_not_empty(tmp_path):
    rows = [f"{number / 10};4096;{100 + number}" for number in range(9)]
    table = read_table(written(tmp_path / "t.csv", "", "read_frac;size_mean;throughput_mb_per_s", *rows))
    assert table.throughput == pytest.approx([1e6 * (100 + number) for number in range(9)])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("size_mean=bs,unique_bytes=bs", "a column stands there twice"),
        ("size_mean=bs,size_mean=qd", "'size_mean=bs,size_mean=qd': a name stands there twice"),
        ("size_mean", "'size_mean' is not understood: give NAME=COLUMN, parted by commas"),
        ("size_mean=bs,=qd", "'size_mean=bs,=qd' is not understood: give NAME=COLUMN, parted by commas"),
    ],
)
def test_a_column_is_one_thing_only(tmp_path, capsys, columns, said):
    path = written(tmp_path / "t.csv", "bs,qd,throughput_mb_per_s", *(f"{4096 * row},{row},9" for row in range(1, 20)))
    assert main(["fit", str(path), "-o", str(tmp_path / "p.json"), "--columns", columns]) == 2
    assert f"--columns: {said}" in capsys.readouterr().err


def test_tables_without_what_is_needed(tmp_path):
    with pytest.raises(FlextraceError, match="no throughput"):
        read_table(written(tmp_path / "a.csv", "read_frac", "0.5"))
    with pytest.raises(FlextraceError, match="no column 'bw'"):
        read_table(written(tmp_path / "b.csv", HEADER, "1,1,1"), {"throughput_mb_per_s": "bw"})
    with pytest.raises(FlextraceError, match="both"):
        read_table(written(tmp_path / "c.csv", f"{HEADER},sizeMean", "1,1,1,1"))
    with pytest.raises(FlextraceError, match="several columns 'lat': give each another name"):
        read_table(written(tmp_path / "c.csv", f"{HEADER},lat,lat", "1,1,1,1,2"))
    with pytest.raises(FlextraceError, match="empty"):
        read_table(written(tmp_path / "d.csv", ""))
    with pytest.raises(FlextraceError, match="2 different workloads"):
        profile_of(read_table(written(tmp_path / "e.csv", HEADER, "0,4096,1", "1,4096,2")))
    with pytest.raises(FlextraceError, match="no parameter of the table changes"):
        read_table(written(tmp_path / "f.csv", HEADER, "0,4096,1", "0,4096,2"))
    with pytest.raises(FlextraceError, match="cannot read table"):
        read_table(tmp_path / "none.csv")


def test_a_profile_of_another_version_is_refused(fitted, tmp_path, capsys):
    document = json.loads(fitted.read_text())
    for version in ("0", "2"):
        document["schema"] = f"flextrace.profile/{version}"
        (tmp_path / "p.json").write_text(json.dumps(document))
        assert main(["predict", str(tmp_path / "p.json"), "--size-mean", "4K", "--process-num", "1"]) == 1
        assert f"has version {version}" in capsys.readouterr().err


def test_a_table_of_curves_has_the_product_form(tmp_path):
    """All five, on curves through one row: the models of machines are tried, too, and the product is exact."""

    def throughput(w: Workload) -> float:
        return 1e8 * (1 + w.seq_frac) * (1 + w.read_frac) * (w.size_mean / 4096) * w.process_num**0.5

    focal = Workload(1e6, 0.5, 0.5, 8192.0, 2.0)
    curves = {
        "seq_frac": (0.0, 0.25, 0.75, 1.0),
        "read_frac": (0.0, 0.3, 0.8, 1.0),
        "size_mean": (4096.0, 16384.0, 65536.0),
        "process_num": (1.0, 4.0, 8.0),
        "unique_bytes": (1e5, 3e5, 5e6),
    }
    rows = [focal, *(focal.replace(**{name: value}) for name, values in curves.items() for value in values)]
    path = written(
        tmp_path / "t.csv",
        "uniqueBytes,seqFrac,readFrac,sizeMean,processNum,throughput_bytes_per_s",
        *(f"{w.unique_bytes},{w.seq_frac},{w.read_frac},{w.size_mean},{w.process_num},{throughput(w)}" for w in rows),
    )
    profile = profile_of(read_table(path))
    (region,) = profile.regions
    assert region.focal.as_document() == focal.as_document()
    target = Workload(1e6, 0.75, 0.3, 16384.0, 4.0)
    model = make_model("product").fit(profile.measured, profile.regions)
    assert model.predict([target])["throughput_bytes_per_s"].iloc[0] == pytest.approx(throughput(target))
