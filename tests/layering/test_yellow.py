"""The checker of nogil code sees a planted Python call, and finds none in cext."""

import os
from pathlib import Path

import yellow

PLANTED = """
static int __pyx_f_8barnabas_4cext_3log_log_append(int x) {
  __Pyx_PyGILState_Ensure();
  return x;
}
"""


def test_planted_gil_call_is_seen():
    assert yellow.findings("log", {yellow.c_name("log", "log_append")}, PLANTED)[1]
    assert not yellow.findings("log", {yellow.c_name("log", "log_read")}, PLANTED)[1]


def test_declarations_are_found():
    source = "cdef inline int64_t* first(int a,\n        int b) noexcept nogil:\n    pass\n"
    assert yellow.nogil_names(source) == {"first"}


def test_no_python_in_nogil_functions():
    folder = Path(os.environ.get("BARNABAS_C_DIR", yellow.ROOT / "build" / "yellow"))
    if "BARNABAS_C_DIR" not in os.environ:
        yellow.generate_c(folder)
    count, wrong = yellow.check_all(folder)
    assert wrong == []
    assert count > 50
