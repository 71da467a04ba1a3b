# SPDX-License-Identifier: Apache-2.0
"""characterize/layout.py against the compiler's view of bpf/trace_format.h: names, offsets, sizes and values."""

import re
import shutil
import subprocess

import pytest

from characterize import layout
from characterize.device_name import device_name
from tests.truths.straced import ROOT

pytestmark = pytest.mark.parallel

HEADER = ROOT / "bpf" / "trace_format.h"

DTYPE_OF = {
    "trace_header": layout.HEADER_DTYPE,
    "io_record": layout.IO_DTYPE,
    "fileop_record": layout.FILEOP_DTYPE,
    "file_record": layout.FILE_DTYPE,
    "task_record": layout.TASK_DTYPE,
    "block_record": layout.BLOCK_DTYPE,
    "gap_record": layout.GAP_DTYPE,
    "text_record": layout.TEXT_DTYPE,
    "block_data_record": layout.BLOCK_DATA_DTYPE,
    "resident_record": layout.RESIDENT_DTYPE,
    "hole_record": layout.HOLE_DTYPE,
    "wake_record": layout.WAKE_DTYPE,
}
# Enum of the header: Python class, prefix of the header's names.
CLASS_OF = {
    "trace_header_flag": (layout.HeaderFlag, "TRACE_"),
    "record_kind": (layout.RecordKind, "RECORD_"),
    "io_op": (layout.IoOp, "IO_"),
    "record_source": (layout.Source, "SOURCE_"),
    "io_flag": (layout.IoFlag, "IO_"),
    "fileop": (layout.Fileop, "FILEOP_"),
    "file_type": (layout.FileType, "FILE_TYPE_"),
    "file_flag": (layout.FileFlag, "FILE_"),
    "block_op": (layout.BlockOp, "BLOCK_"),
    "block_form": (layout.BlockForm, "BLOCK_"),
    "block_flag": (layout.BlockFlag, "BLOCK_"),
    "block_data_class": (layout.BlockDataClass, "DATA_"),
}
CONSTANTS = (
    "TRACE_VERSION_MAJOR",
    "TRACE_VERSION_MINOR",
    "TRACE_HEADER_BYTES",
    "TRACE_RECORD_BYTES",
    "TRACE_JSON_BYTES_MAX",
    "TRACE_TEXT_BYTES",
    "TRACE_PATH_BYTES_MAX",
    "TRACE_KINDS_MAX",
    "PROCESSOR_SHARE_NONE",
    "PROCESSOR_SHARE_ALL",
    "IO_RUN_DELAY_SHIFT",
    "IO_RUN_DELAY_NONE",
    "IO_RUN_DELAY_ALL",
    "IO_FAULTS_SHIFT",
    "IO_FAULTS_MAX",
    "FILEOP_NAME_SHIFT",
    "LARGE_FOLIOS_NONE",
    "LARGE_FOLIOS_ALL",
)


def header_text() -> str:
    return re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)


def declared_structs() -> dict[str, list[str]]:
    """Field names of every struct, as the header's text has them."""
    structs = {}
    for name, body in re.findall(r"struct (\w+) \{(.*?)\n\};", header_text(), flags=re.S):
        structs[name] = re.findall(r"(\w+)(?:\[[^;]*\])?;", body)
    return structs


def declared_enums() -> dict[str, list[str]]:
    """Names of every enum's values; the unnamed one is called ``""``."""
    enums = {}
    for name, body in re.findall(r"enum (\w*) ?\{(.*?)\n\};", header_text(), flags=re.S):
        enums[name] = re.findall(r"(\w+)\s*=", body)
    return enums


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict[str, int]:
    """``struct.field.offset``, ``struct.field.size``, ``struct`` (size) and enum values, as gcc has them."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not installed")
    lines = [f'#include "{HEADER}"', "#include <stddef.h>", "#include <stdio.h>", "int main(void)", "{"]
    for struct, fields in declared_structs().items():
        lines.append(f'printf("{struct} %zu\\n", sizeof(struct {struct}));')
        for field in fields:
            member = f"((struct {struct} *)0)->{field}"
            lines.append(f'printf("{struct}.{field}.offset %zu\\n", offsetof(struct {struct}, {field}));')
            lines.append(f'printf("{struct}.{field}.size %zu\\n", sizeof({member}));')
    for values in declared_enums().values():
        lines.extend(f'printf("{value} %lld\\n", (long long){value});' for value in values)
    for macro in ("TRACE_NOT_MEASURED_U32", "TRACE_FIRST_NAME_ID"):
        lines.append(f'printf("{macro} %lld\\n", (long long){macro});')
    lines.append('printf("MAGIC_BYTES %zu\\n", sizeof(TRACE_MAGIC) - 1);')
    lines.append("return 0;\n}")
    directory = tmp_path_factory.mktemp("layout")
    source, program = directory / "layout.c", directory / "layout"
    source.write_text("\n".join(lines))
    subprocess.run([compiler, "-std=gnu11", "-o", str(program), str(source)], check=True)
    output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in output.splitlines())}


def test_the_same_structs_on_both_sides():
    assert set(declared_structs()) == set(DTYPE_OF)


@pytest.mark.parametrize("struct", DTYPE_OF)
def test_fields_offsets_and_sizes(struct, compiled):
    dtype = DTYPE_OF[struct]
    assert list(dtype.names) == declared_structs()[struct]
    assert dtype.itemsize == compiled[struct]
    for name in dtype.names:
        field, offset = dtype.fields[name][:2]
        assert offset == compiled[f"{struct}.{name}.offset"], name
        assert field.itemsize == compiled[f"{struct}.{name}.size"], name


def test_signed_fields_are_signed():
    signed = {name for name, body in re.findall(r"__s32 (\w+)()", header_text())}
    assert signed == {"result"}
    assert layout.IO_DTYPE["result"].kind == layout.FILEOP_DTYPE["result"].kind == "i"


def test_the_same_enums_on_both_sides():
    assert set(declared_enums()) - {""} == set(CLASS_OF)
    assert set(declared_enums()[""]) == set(CONSTANTS)


@pytest.mark.parametrize("enum", CLASS_OF)
def test_enum_values(enum, compiled):
    python_class, prefix = CLASS_OF[enum]
    ours = {prefix + name: int(member) for name, member in python_class.__members__.items()}
    assert ours == {name: compiled[name] for name in declared_enums()[enum]}


def test_constants(compiled):
    assert {name: getattr(layout, name) for name in CONSTANTS} == {name: compiled[name] for name in CONSTANTS}
    assert compiled["TRACE_NOT_MEASURED_U32"] == layout.NOT_MEASURED_U32
    assert compiled["TRACE_FIRST_NAME_ID"] == layout.TRACE_FIRST_NAME_ID
    assert f'"{layout.TRACE_MAGIC.decode()}"' in HEADER.read_text()
    assert len(layout.TRACE_MAGIC) == compiled["MAGIC_BYTES"]


def test_every_record_kind_has_its_struct(compiled):
    for kind, dtype in layout.RECORD_DTYPE.items():
        assert dtype is DTYPE_OF[f"{kind.name.lower()}_record"]
    assert set(layout.RECORD_DTYPE) == set(layout.RecordKind)


def test_device_name():
    assert device_name(8 << 20 | 17) == "8:17"
    assert device_name(259 << 20 | 0xFFFFF) == "259:1048575"
