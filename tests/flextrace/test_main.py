# SPDX-License-Identifier: Apache-2.0
"""What every verb has in common: what becomes of output that nobody takes."""

import errno
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import characterize
from characterize.errors import remedy_of
from characterize.layout import RecordKind
from characterize.trace_files.provenance import tool_version
from flextrace.main import VERBS, main
from tests.runs.ordinary_user import NUMBER, directory_of_user
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import ROOT

pytestmark = pytest.mark.parallel

FLEXTRACE = [sys.executable, "-m", "flextrace"]
WILLY = ["--unique-bytes", "1M", "--seq-frac", "0", "--read-frac", "1", "--size-mean", "4K"]


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    rows = [read(4096 * at, 4096, 1000 * at, 500) for at in range(100)]
    made = made_trace(rows, files=[{"file": 1, "size_bytes": 1 << 20}])
    return characterize.write(made, tmp_path_factory.mktemp("trace") / "t.iotrace")


@pytest.mark.parametrize("words", ["info {trace}", "--help", "--version", "scale --help"])
def test_full_output_is_told_by_its_name_in_one_line(trace, words):
    with open("/dev/full", "w") as full:
        command = [*FLEXTRACE, *words.format(trace=trace).split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"flextrace{'' if words[0] == '-' else ' ' + words.split()[0]}: ")
    assert "cannot write to standard output: No space left on device; make room there" in line


def test_output_that_is_larger_than_its_buffer_is_told_too(trace):
    words = [*FLEXTRACE, "characterize", str(trace), "--format", "json"]
    printed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    assert len(printed) > 2 * io.DEFAULT_BUFFER_SIZE
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("flextrace characterize: cannot write to standard output: No space")


@pytest.mark.parametrize("words", ["info {trace}", "--help", "scale --help"])
@pytest.mark.parametrize("nobody", ["| true", ">&-"])
def test_output_that_nobody_takes_is_no_error(trace, words, nobody):
    """A reader that has enough, and an output that is closed."""
    command = " ".join(["set -o pipefail;", *FLEXTRACE, words.format(trace=trace), nobody])
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert done.stderr == "" or nobody == ">&-"  # where a help goes then


@pytest.mark.parametrize("nowhere", ["/dev/full", "&-", " >(true)"])
def test_talk_that_nobody_takes_is_no_error_and_stands_in_no_data(tmp_path, nowhere):
    """Of willy it has where to go on."""
    words = ["willy", "-o", str(tmp_path / "w.iotrace"), "--format", "json", *WILLY]
    command = " ".join([*FLEXTRACE, *words, f"2>{nowhere}"])
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["schema"] == "flextrace.willy/1"


def test_names_keep_their_capitals_in_the_help(capsys):
    for verb, name in (("report", "HTML"), ("export", "(CSV)"), ("record", "VFS"), ("compare", "Willy")):
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        assert name in capsys.readouterr().out.split("options:")[0]


def test_the_usage_of_rank_has_both_its_forms(capsys):
    with pytest.raises(SystemExit):
        main(["rank", "--help"])
    usage = capsys.readouterr().out.split("positional")[0]
    assert "rank [OPTION ...] TRACE PROFILE.json ...\n" in usage
    assert "--workloads table5.2 PROFILE.json ...\n" in usage


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"flextrace {tool_version()}\n"


def test_the_readme_lists_every_verb():
    text = (ROOT / "README.md").read_text().split("## Start")[0]
    lists = re.findall(r"^    ([a-z]+(?:, [a-z]+)*) +\S", text, re.MULTILINE)
    listed = {word.strip() for words in lists for word in words.split(",")}
    assert set(VERBS) <= listed


def test_the_help_of_record_says_units_and_exit_codes_of_its_own(capsys):
    with pytest.raises(SystemExit):
        main(["record", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "TIME ns, us, ms, s, m or h" in text
    assert "The exit code is that of the command, if it is not 0; otherwise 0 ok, 1 failed, 2 usage, 3" in text


def test_what_a_message_names_is_an_option_of_the_verb(tmp_path, capsys):
    """--format is that of the output, --input-format that of what is read."""
    (tmp_path / "unknown").write_text("nothing that anybody writes\n" * 9)
    for words in (["characterize", "unknown"], ["import", "unknown", "-o", "made.iotrace"]):
        assert main([words[0], *(str(tmp_path / word) if word[0] != "-" else word for word in words[1:])]) == 1
        assert "force it by --input-format of 'flextrace import' or 'flextrace characterize'" in capsys.readouterr().err
        with pytest.raises(SystemExit):
            main([words[0], "--help"])
        assert "--input-format FORMAT" in capsys.readouterr().out


def test_a_directory_that_cannot_be_made_is_told_with_what_to_do(tmp_path, capsys):
    options = ["--directory", str(tmp_path / "missing" / "place"), "-o", str(tmp_path / "p.json")]
    assert main(["scale", *options]) == 2
    assert "name one in a directory that is there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("replay t.iotrace --directory d --memory 0", "--memory: a memory group of 0 bytes cannot hold a process"),
        ("scale --directory d -o p.json --memory 4K", "--memory: a memory group of 4096 bytes"),
        ("validate p.json --memory 0", "--memory: a memory group of 0 bytes"),
        ("scale --directory d -o p.json --budget ", "--budget: duration '' is not understood"),
        ("scale --directory d -o p.json --direct --span 0", "cannot touch 0 B of d"),
        ("scale --directory d -o p.json --direct --depth 5000", "--depth needs a number from 1 to 4096"),
        ("replay t.iotrace --directory d --max-time 0", "--max-time needs more than 0 s"),
        ("replay t.iotrace --directory d --loop --max-time 0", "--max-time needs more than 0 s"),
        ("replay t.iotrace --directory d --max-time 1e300", "--max-time: duration '1e300' is too large"),
        ("cut t.iotrace -o x.iotrace --to 1e300", "--to: duration '1e300' is too large"),
        ("predict p.json --unique-bytes 1e300", "--unique-bytes: size '1e300' is too large"),
        ("replay t.iotrace --directory d --timing recorded --late skip --late-limit 0", "--late-limit needs more"),
        ("replay t.iotrace --directory d --computing off", "--computing is for think times: give --timing think"),
        ("replay t.iotrace --engine null --memory 64M", "the null engine does no I/O"),
        ("replay t.iotrace --device d --confirm 5", "--confirm is for --write"),
        ("compare t.iotrace --profile p.json --directory d --max-time 0", "--max-time needs more than 0 s"),
        ("alter t.iotrace -o no/such/x.iotrace --size-mean 2x", "its directory does not exist"),
        ("alter t.iotrace -o x.parquet --size-mean 2x", "is the name of an archive"),
        ("willy -o no/such/x.iotrace --unique-bytes 1M --seq-frac 0 --read-frac 0 --size-mean 4K", "does not exist"),
        ("cut t.iotrace -o no/such/x.iotrace --path *", "its directory does not exist"),
        ("export t.iotrace -o no/such/x.csv", "its directory does not exist"),
        ("import t.csv -o no/such/x.iotrace", "its directory does not exist"),
        ("import t.csv -o x.iotrace --sector-bytes ", "--sector-bytes: size '' is not understood"),
        ("characterize t.iotrace --window 1parsec", "--window: duration '1parsec' is not understood"),
        ("characterize t.iotrace --sample x", "--sample: size 'x' is not understood"),
        ("characterize t.iotrace --workers 99999", "99999 workers cannot be started: give 1 to 1024"),
        ("alter t.iotrace -o x.iotrace --size-mean 4Q", "sizeMean: size '4Q' is not understood"),
        ("alter t.iotrace -o x.iotrace --process-num 1e400x", "processNum '1e400x': a factor must be a number"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(command, said, tmp_path, capsys, monkeypatch):
    """And the message names the option. No trace or profile is there: nobody has looked for one yet."""
    monkeypatch.chdir(tmp_path)
    assert main(command.split(" ")) == 2
    assert said in capsys.readouterr().err
    assert not [path for path in tmp_path.iterdir() if path.name != "d"]


def test_a_name_in_a_message_commands_no_terminal(tmp_path, capsys):
    """Nor is it lost for bytes that are no text."""
    assert main(["info", str(tmp_path / os.fsdecode(b"a\x1b[31m\xff\tb"))]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert r"a\x1b[31m\udcff\tb: No such file" in line


@pytest.mark.parametrize(
    "words", ["info", "characterize --format json", "export -o e.parquet", "report -o r.html --trace"]
)
def test_a_name_in_a_warning_commands_no_terminal(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lossy = made_trace([read(0, 4096, 1, 5)], files=[{"file": 1, "size_bytes": 4096}], lost={RecordKind.IO: 3})
    path = characterize.write(lossy, tmp_path / "a\x1b[31m.iotrace")
    assert main([*words.split(), str(path)]) == 3
    error = capsys.readouterr().err
    assert r"a\x1b[31m.iotrace" in error
    assert "\x1b" not in error


def test_traces_of_any_name_stand_side_by_side(tmp_path, capsys):
    paths = [str(tmp_path / os.fsdecode(name)) for name in (b"plain", b"a\xff\x1b")]
    for path in paths:
        characterize.write(made_trace([read(0, 4096, 1, 5)], files=[{"file": 1, "size_bytes": 4096}]), Path(path))
    assert main(["characterize", *paths]) == 0
    assert r"a\udcff\x1b" in capsys.readouterr().out


def test_memory_that_is_not_there_is_told_in_one_line(monkeypatch, capsys):
    def greedy(verb):
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setattr("flextrace.main.make_parser", greedy)
    assert main(["willy"]) == 1
    assert capsys.readouterr().err == "flextrace willy: there is not enough memory: Unable to allocate 7.28 TiB\n"


def test_no_place_for_compiled_functions_is_told_in_one_line(monkeypatch, capsys):
    """Of whoever has no home; other errors of that kind are not hidden."""

    def without_place(verb):
        raise RuntimeError("cannot cache function '_partition': no locator available for file 'block_lanes.py'")

    def broken(verb):
        raise RuntimeError("of another kind")

    monkeypatch.setattr("flextrace.main.make_parser", without_place)
    assert main(["replay"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("set NUMBA_CACHE_DIR to a directory that you may write, in which they are kept")
    monkeypatch.setattr("flextrace.main.make_parser", broken)
    with pytest.raises(RuntimeError, match="of another kind"):
        main(["replay"])


INTERRUPTED_TWICE = {
    "while the first one is told": """
class Told(type(sys.stderr)):
    def write(self, text):
        super().write(text)
        again()

def make_parser(verb):
    raise KeyboardInterrupt

sys.stderr = Told(sys.stderr.buffer, line_buffering=True)
""",
    "when the verb has told it": """
class make_parser:
    def __init__(self, verb):
        pass

    def parse_args(self, words):
        return SimpleNamespace(run=lambda arguments: 130)

atexit.register(again)
""",
}
INTERRUPTED_TWICE["when Python has taken its handlers back"] = INTERRUPTED_TWICE["when the verb has told it"].replace(
    "atexit.register(again)",
    """
class Module:
    def __del__(self, kill=os.kill, process=os.getpid(), number=int(signal.SIGINT)):
        kill(process, number)

module = Module()
""",
)


@pytest.mark.parametrize("moment", INTERRUPTED_TWICE)
def test_another_interruption_makes_no_traceback_nor_a_death_of_a_signal(moment):
    """A Ctrl-C that repeats, or a wrapper that signals twice."""
    program = f"""
import atexit, os, signal, sys
from types import SimpleNamespace
import flextrace.__main__ as program
import flextrace.main

def again():
    os.kill(os.getpid(), signal.SIGINT)
{INTERRUPTED_TWICE[moment]}
flextrace.main.make_parser = make_parser
sys.argv = ["flextrace", "doctor"]
sys.exit(program.main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["flextrace.main", "flextrace.doctor"])
def test_an_interruption_of_its_imports_makes_no_traceback_nor_a_death_of_a_signal(module):
    program = f"""
import os, runpy, signal, sys

class Interrupted:
    def find_spec(name, *of):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell runs the tests aside
sys.meta_path.insert(0, Interrupted)
sys.argv = ["flextrace", "doctor"]
runpy.run_module("flextrace", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_an_interruption_is_one_line_also_where_what_was_being_made_fails_to_be_freed():
    program = """
import sys
import flextrace.main as main

class HalfMade:
    def __del__(self):
        raise AttributeError("it has no handle yet")

kept = HalfMade()

def interrupted(verb):
    raise KeyboardInterrupt

main.make_parser = interrupted
sys.exit(main.main(["doctor"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "flextrace doctor: interrupted\n")


def test_what_else_failed_is_told_behind_an_interruption(monkeypatch, capsys):
    def interrupted(verb):
        error = KeyboardInterrupt()
        error.add_note("cannot remove the memory group")
        raise error

    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # main replaces it
    monkeypatch.setattr("flextrace.main.make_parser", interrupted)
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "flextrace doctor: interrupted\ncannot remove the memory group\n"


@pytest.mark.parametrize("returns", [1, 3])
def test_an_interruption_of_a_compiled_function_is_one(returns, monkeypatch, capsys):
    def interrupted(verb):
        error: BaseException = KeyboardInterrupt()
        for _ in range(returns):  # numba's own functions on the way add theirs
            outer = SystemError("returned a result with an exception set")
            outer.__cause__ = error
            error = outer
        raise error

    def broken(verb):
        raise SystemError("of another kind")

    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # main replaces it
    monkeypatch.setattr("flextrace.main.make_parser", interrupted)
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "flextrace doctor: interrupted\n"
    monkeypatch.setattr("flextrace.main.make_parser", broken)
    with pytest.raises(SystemError, match="of another kind"):
        main(["doctor"])


@pytest.mark.root
@pytest.mark.parametrize(
    "words",
    [
        "info {}/t.iotrace",
        "characterize {}/t.iotrace",
        "characterize {}/t.csv --input-format csv",
        "import {}/t.csv -o {}/t.iotrace",
        "predict {}/p.json --unique-bytes 1M --seq-frac 0 --read-frac 1 --size-mean 4K --process-num 1",
        "fit t.csv -o {}/p.json",
        "report p.json -o {}/r.html",
        "scale --directory {}/d -o p.json",
        "replay t.iotrace --directory {}/d --output {}/r.json",
        "record -o {}/t.iotrace -- true",
    ],
)
def test_a_directory_that_may_not_be_entered_is_named(words, capsys, monkeypatch):
    with directory_of_user() as place:
        monkeypatch.chdir(place)
        if not words.startswith("record"):
            main(words.format("none", "none").split())  # has all imported, which need not be there for everybody
        (place / "closed").mkdir(mode=0o700)
        (place / "closed" / "below").mkdir()
        os.seteuid(NUMBER)
        try:
            assert main(words.format("closed/below", "closed/below").split()) in {1, 2}
        finally:
            os.seteuid(0)
    told = f": directory {place / 'closed'} may not be entered; run as its owner or as root, or have it opened\n"
    assert capsys.readouterr().err.endswith(told)


def test_a_file_that_may_not_be_read_is_told_without_more(tmp_path):
    closed = tmp_path / "closed"
    assert remedy_of(PermissionError(errno.EACCES, "Permission denied", str(closed))) == ""
    assert remedy_of(PermissionError(errno.EACCES, "Permission denied")) == ""
    assert remedy_of(FileNotFoundError(errno.ENOENT, "No such file", str(closed / "none"))) == ""
    assert remedy_of(OSError(errno.ENOSPC, "No space left on device", str(closed))) == "; make room there"
