# SPDX-License-Identifier: Apache-2.0
"""The report: every section is there, the page is well formed and loads nothing, and no file name leaves its cell."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.trace import Header, Trace
from characterize.trace_files.provenance import sha256_of
from characterize.workload import Workload
from selfscale.predicting.prediction_errors import applications_of, errors_of
from selfscale.profile import Profile, Region
from selfscale.report import write_report
from selfscale.reporting.machine_report import machine_section
from selfscale.reporting.prediction_figures import prediction_figures
from selfscale.reporting.profile_figures import single_parameter_graphs
from selfscale.reporting.report_parts import Cell
from tests.traces.made_report import EVIL, MIB, Page, make_comparison, make_profile, make_trace

pytestmark = pytest.mark.parallel


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    directory = tmp_path_factory.mktemp("report")
    lineage = {
        "changes": {"sizeMean": "4x"},
        "before": {"sizeMean": 4096},
        "wanted": {"sizeMean": 16384},
        "achieved": {"sizeMean": 16380.5},
        "deviation": {"sizeMean": -0.0002, "seqFrac": -0.0031, "thinkScale": 0.0},
        "times": {"thinkScale": {"wanted": 2.5, "achieved": 2.5}},
    }
    traces = [
        make_trace(directory / "one.iotrace"),
        make_trace(directory / "altered.iotrace", name="/data/plain", lineage=lineage),
    ]
    path = write_report(directory / "r.html", profiles=[make_profile()], traces=traces, comparisons=[make_comparison()])
    return Page(path.read_text())


def test_every_section_and_figure_is_there(page: Page) -> None:
    text = " ".join(page.text)
    sections = {value for tag, name, value in page.attributes if tag == "section" and name == "id"}
    assert {"comparison-1", "machine", "trace-1", "trace-2", "alterations", "provenance"} <= sections
    for words in (
        "Single parameter graphs",
        "Predicted against measured",
        "Cumulative error",
        "Certainty of the median error",
        "Error against each parameter",
        "profile's own random workloads",
        "Miss-ratio curve",
        "Rate and depth over time",
        "Offsets over time",
        "Activity of each file",
        "Activity of each device",
        "Response times",
        "block layer",
        "memory_limit_bytes",
        "uniqueBytes",
        "16380.5",
        "-0.02%",
        "-0.0031",
        "2.5x",
        "0% of its read bytes cold",
        "Remarks",
    ):
        assert words in text, words


def test_the_page_is_well_formed_and_plots_have_sentence_and_data(page: Page) -> None:
    assert page.wrong == []
    assert page.open == []
    plots = [json.loads(text) for attributes, text in page.scripts if attributes.get("class") == "plot-data"]
    # Comparison, five of the machine, six per trace at each of two layers.
    assert len(plots) == 1 + 5 + 2 * (6 + 6)
    assert page.tags.count("figure") == page.tags.count("figcaption") == len(plots)
    assert all(inside == "figcaption" for tag, inside in itertools.pairwise(page.tags) if tag == "figure")
    assert " ".join(page.text).count("Show data") == len(plots)
    assert all(plot["data"] for plot in plots)
    targets = [value for tag, name, value in page.attributes if name == "id"]
    assert len(targets) == len(set(targets))
    assert all(attributes["data-plot"] in targets for attributes, _ in page.scripts if "data-plot" in attributes)


def test_plotly_is_inside_exactly_once(page: Page) -> None:
    from plotly.offline import get_plotlyjs  # noqa: PLC0415

    assert sum(text == get_plotlyjs() for _, text in page.scripts) == 1
    assert sum(len(text) > 1_000_000 for _, text in page.scripts) == 1


def test_nothing_is_loaded_from_anywhere(page: Page) -> None:
    loading = [
        (tag, name, value)
        for tag, name, value in page.attributes
        if name in ("src", "href", "srcset", "data", "action")
    ]
    assert loading
    assert all(tag == "a" and value.startswith("#") for tag, _, value in loading)
    assert not re.search(r"https?:", " ".join(page.text))
    assert not any("http" in text for attributes, text in page.scripts if attributes.get("class") == "plot-data")
    assert "link" not in page.tags
    assert "iframe" not in page.tags


def test_a_report_that_does_not_fit_leaves_nothing_and_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    path.write_text("the old one")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
    try:
        with pytest.raises(FlextraceError, match=r"cannot write .*too large"):
            write_report(path, profiles=[make_profile()], force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_name_with_markup_stays_text(page: Page) -> None:
    assert EVIL in " ".join(page.text)
    assert not any(
        "alert('owned" in text for attributes, text in page.scripts if attributes.get("class") != "plot-data"
    )
    assert all(text.count("<") == 0 for attributes, text in page.scripts if attributes.get("class") == "plot-data")


def test_figure_4_7_has_a_column_per_region_and_a_row_per_parameter() -> None:
    profile = make_profile()
    figure = single_parameter_graphs(profile)
    titles = [annotation.text for annotation in figure.plot.layout.annotations]
    assert [
        f"{name}, region {number}" in titles
        for name in ("sizeMean", "readFrac", "processNum", "seqFrac")
        for number in (1, 2)
    ] == [True] * 8
    by_graph = figure.data.groupby(["parameter", "region"])
    assert len(by_graph) == 1 + 4 * 2
    size = by_graph.get_group(("sizeMean", 2))
    assert size["value"].tolist() == [4096, 16384, 32768, 131072]
    expected = [
        point.throughput_bytes_per_s / 1e6
        for point in profile.measured
        if point.parameter == "sizeMean" and point.region == 1
    ]
    assert size["throughput_MB_per_s"].tolist() == pytest.approx(expected)
    first = figure.plot.data[0]
    shares = [half_width / value for half_width, value in zip(first.error_y.array, first.y, strict=True)]
    # The two focal points belong to all curves of their region, so they were measured more often and are known better.
    assert [share for share in shares if share > 0.029] == pytest.approx([0.03] * 9)
    bands = [shape for shape in figure.plot.layout.shapes if shape.type == "rect"]
    assert [(band.x0, band.x1) for band in bands] == [(5 * MIB, 100 * MIB), (100 * MIB, 400 * MIB)]


def test_figures_5_3_and_5_4_have_every_model_beside_the_repeatability() -> None:
    profile = make_profile()
    random = [point for point in profile.measured if point.role == "random"]
    factors = np.linspace(0.9, 1.2, len(random))
    profile.measured += [
        dataclasses.replace(point, throughput_bytes_per_s=point.throughput_bytes_per_s * factor, repeat=1)
        for point, factor in zip(random, factors, strict=True)
    ]
    errors = errors_of(profile)
    scatter, cumulative, certainty, parameters = prediction_figures(
        errors, profile.boundaries_bytes, applications_of(profile, [])
    )
    names = {trace.name.removesuffix(" (used)") for trace in cumulative.plot.data}
    assert names == set(errors.models) >= {"product", "repeatability"}
    assert [title.text.split(",")[0].removesuffix(" (used)") for title in scatter.plot.layout.annotations] == [
        *errors.models
    ]
    drawn = {trace.name: trace for trace in scatter.plot.data if trace.name}
    measured = [point.throughput_bytes_per_s / 1e6 for point in random]
    for model in errors.models:
        assert drawn[model].x == pytest.approx(measured)
    again = [value * factor for value, factor in zip(measured, factors, strict=True)]
    assert drawn["repeatability"].y == pytest.approx(again)
    off = sorted(100 * abs(factors - 1))
    repeated = next(trace for trace in cumulative.plot.data if trace.name == "repeatability")
    assert repeated.x == pytest.approx(off)
    assert repeated.y == pytest.approx([100 * rank / 12 for rank in range(1, 13)])
    assert certainty.plot.layout.yaxis.title.text == "median error, percent"
    shaded = [trace for trace in parameters.plot.data if trace.fill == "tozeroy"]
    assert [trace.name for trace in shaded] == ["repeatability"] * 5
    assert [line.x0 for line in parameters.plot.layout.shapes] == [100 * MIB]


def test_drift_of_reference_points_is_a_table_with_what_was_measured() -> None:
    entry = {"region": 0, "throughput_bytes_per_s": [11e6, 13e6], "spread": 1 / 6, "last_to_first": 2 / 11}
    profile = Profile(regions=[Region(1e6, 2e6, Workload(1e6, 0.5, 0.5, 4096.0, 1.0))])
    assert not [table for table in machine_section(profile).tables if table.title.startswith("Drift")]
    profile.drift = {"reference_points": [entry]}
    (table,) = [table for table in machine_section(profile).tables if table.title.startswith("Drift")]
    assert [cell.text for cell in table.rows[0]] == ["only region", "11 MB/s, 13 MB/s", "16.7%", "+18.2%"]


def test_cross_validated_errors_stand_beside_the_repeatability() -> None:
    profile = make_profile()
    assert model_table(profile)["repeatability"][1].text == "2 measured again"  # its focal points are on every curve
    profile.measured = list({point.workload: point for point in profile.measured}.values())
    row = model_table(profile)["repeatability"]
    assert (row[0].below, {cell.text for cell in row[1:]}) == ("nothing was measured twice", {"-"})
    random = [point for point in profile.measured if point.role == "random"]
    # As far apart as a tenth to a fifth of their mean, the more the larger uniqueBytes are.
    random.sort(key=lambda point: point.workload.unique_bytes)
    spreads = np.linspace(0.1, 0.2, len(random))
    profile.measured += [
        dataclasses.replace(
            point, throughput_bytes_per_s=point.throughput_bytes_per_s * (2 + spread) / (2 - spread), repeat=1
        )
        for point, spread in zip(random, spreads, strict=True)
    ]
    within = [spread for point, spread in zip(random, spreads, strict=True) if point.workload.unique_bytes <= 100 * MIB]
    beyond = spreads[len(within) :]
    expected = [f"{value:.1%}" for value in np.quantile(spreads, (0.5, 0.75, 0.9))]
    expected += [f"{np.median(within):.1%}, {np.median(beyond):.1%}"]
    row = model_table(profile)["repeatability"]
    assert [cell.text for cell in row[1:]] == ["12 measured again", *expected]
    assert len(model_table(profile)) > 2


def model_table(profile: Profile) -> dict[str, list[Cell]]:
    """Rows by model."""
    profile.models["points"] = len(profile.measured)
    tables = {table.title: table for table in machine_section(profile).tables}
    return {row[0].text: row for row in tables["Cross-validated errors of the models"].rows}


def test_figure_5_3_has_the_applications_that_were_compared_with_this_profile(tmp_path: Path) -> None:
    profile = make_profile()
    profile.save(tmp_path / "p.json")
    document = make_comparison("/traces/sort.iotrace") | {"profile_sha256": sha256_of(tmp_path / "p.json")}
    next(row for row in document["rows"] if row["row"] == "prediction")["model"] = "product"
    found = applications_of(profile, [document, document | {"profile_sha256": "another"}])
    # make_comparison: 300 MB/s measured, 250 MB/s predicted.
    assert found[["model", "workload"]].to_numpy().tolist() == [["product", "sort"]]
    assert found["error"].tolist() == pytest.approx([50 / 300])
    # What is missing of a row is not known, as in the table of the comparison.
    edited = json.loads(json.dumps(document))
    del edited["rows"][0]["median"]["throughput_in_io_bytes_per_s"]
    assert applications_of(profile, [edited, document]).equals(found)
    scatter = prediction_figures(errors_of(profile), profile.boundaries_bytes, found)[0]
    (drawn,) = [trace for trace in scatter.plot.data if trace.mode == "markers+text"]
    assert (list(drawn.x), list(drawn.y), list(drawn.text)) == ([300.0], [250.0], ["sort"])
    assert len(next(trace for trace in scatter.plot.data if trace.name == "product").x) == 12


def test_without_random_workloads_the_report_says_how_to_get_them(tmp_path: Path) -> None:
    profile = make_profile()
    profile.measured = [point for point in profile.measured if point.role != "random"]
    page = Page(write_report(tmp_path / "r.html", profiles=[profile]).read_text())
    text = " ".join(page.text)
    assert "5.3 to 5.6" in text
    assert "flextrace validate" in text
    assert "Single parameter graphs" in text
    assert "Cumulative error" not in text


def test_several_profiles_stand_side_by_side_and_validations_find_theirs(tmp_path: Path, capsys: Any) -> None:
    from flextrace.main import main  # noqa: PLC0415

    profiles = [make_profile(), make_profile()]
    random = [point for point in profiles[0].measured if point.role == "random"]
    for name, profile in zip(("one", "two"), profiles, strict=True):
        profile.created = name
        profile.measured = [point for point in profile.measured if point.role != "random"]
        profile.save(tmp_path / f"{name}.json")
    document = {"schema": "flextrace.validation/1", "settings": {"created": "two"}, "warnings": ["another kernel"]}
    document["points"] = [point.as_document() for point in random]
    (tmp_path / "v.json").write_text(json.dumps(document))
    paths = [str(tmp_path / name) for name in ("one.json", "two.json")]
    target, validation = tmp_path / "r.html", ["--validation", str(tmp_path / "v.json")]
    assert main(["report", *paths, "-o", str(target), *validation]) == 0
    page = Page(target.read_text())
    assert page.wrong == []
    text = " ".join(page.text)
    sections = [value for tag, name, value in page.attributes if tag == "section" and name == "id"]
    assert [name for name in sections if name.startswith("machine")] == ["machines", "machine-1", "machine-2"]
    for words in ("Size of the file cache", "Throughput at the focal points", "Reads of 32 KiB", "share of reads"):
        assert words in text, words
    assert text.count("Cumulative error") == 1
    assert text.count("are not drawn") == 1
    assert "another kernel" in text
    capsys.readouterr()
    assert main(["report", "--profile", paths[0], "-o", str(target), *validation, "--force"]) == 2
    assert "none of those given" in capsys.readouterr().err
    (tmp_path / "v.json").write_text("{}")
    assert main(["report", paths[1], "-o", str(target), *validation, "--force"]) == 1
    assert "flextrace validate" in capsys.readouterr().err


def test_a_trace_without_requests_is_reported_as_such(tmp_path: Path) -> None:
    path = characterize.write(Trace(Header(), {}), tmp_path / "empty.iotrace")
    page = Page(write_report(tmp_path / "r.html", traces=[characterize.open(path)]).read_text())
    assert "This trace holds no request." in " ".join(page.text)
    assert page.wrong == []


@pytest.mark.parametrize(("share", "warned"), [(0.4, False), (0.6, True)])
def test_only_of_a_machine_most_of_whose_points_were_not_steady_is_warned(
    tmp_path: Path, share: float, warned: bool
) -> None:
    """As predict and rank do; where it is fewer, the section on the machine tells how many."""
    profile = make_profile()
    learned = [at for at, point in enumerate(profile.measured) if point.role != "random"]
    unsteady = learned[: round(share * len(learned))]
    profile.measured = [
        dataclasses.replace(point, steady=at not in unsteady) for at, point in enumerate(profile.measured)
    ]
    text = " ".join(Page(write_report(tmp_path / "r.html", profiles=[profile]).read_text()).text)
    assert ("profile unnamed" in text) == warned
    assert ("that predictions rest on were not steady" in text) == warned
    assert "points were not steady" in text


def test_nothing_is_overwritten_and_nothing_is_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from flextrace.main import main  # noqa: PLC0415

    target = tmp_path / "r.html"
    make_profile().save(tmp_path / "p.json")
    command = ["report", "-o", str(target), "--profile", str(tmp_path / "p.json")]
    assert main(command) == 0
    assert capsys.readouterr().out.strip() == str(target)
    before = target.read_bytes()
    assert main(command) == 2
    assert "--force" in capsys.readouterr().err
    assert target.read_bytes() == before
    assert main([*command, "--force"]) == 0
    assert main(["report", "-o", str(tmp_path / "x.html")]) == 2
    with pytest.raises(FlextraceError, match="already"):
        write_report(target, profiles=[make_profile()])
    assert re.search(r"flextrace report</title>", target.read_text())


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("rows"),
        lambda document: document.update(reasons=5),
        lambda document: document["rows"][1].pop("median"),
        lambda document: document["rows"][1]["median"].update(throughput_in_io_bytes_per_s="fast"),
        lambda document: document["rows"][1]["median"].update(throughput_in_io_bytes_per_s=10**400),
        lambda document: document["rows"].insert(1, 7),
        lambda document: document.update(columns=[]),
    ],
)
def test_a_damaged_comparison_is_told_in_one_line(
    change: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from flextrace.main import main  # noqa: PLC0415

    document = json.loads(json.dumps(make_comparison("/traces/sort.iotrace")))
    change(document)
    (tmp_path / "c.json").write_text(json.dumps(document))
    assert main(["report", "-o", str(tmp_path / "r.html"), "--comparison", str(tmp_path / "c.json")]) == 1
    assert "the comparison of /traces/sort.iotrace is damaged" in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()
