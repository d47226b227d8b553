"""The checker of nogil code sees a planted Python call, and finds none in cext."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yellow

pytestmark = pytest.mark.takes(seconds=22)

PLANTED = """
static int __pyx_f_8barnabas_4cext_3log_log_append(int x) {
  __Pyx_PyGILState_Ensure();
  return x;
}
"""


def test_planted_gil_call_is_seen():
    assert yellow.findings("log", {yellow.c_name("log", "log_append")}, PLANTED)[1]
    assert not yellow.findings("log", {yellow.c_name("log", "log_read")}, PLANTED)[1]


PLANTED_BLOCK = """
      _save = PyEval_SaveThread();
      __Pyx_FastGIL_Remember();
      /*try:*/ {
        __pyx_t_2 = __pyx_f_leaf(__pyx_v_x); if (unlikely(__Pyx_ErrOccurredWithGIL())) __PYX_ERR()
      }
      /*finally:*/ {
          __Pyx_FastGIL_Forget();
          PyEval_RestoreThread(_save);
"""


def test_planted_gil_call_in_a_block_is_seen():
    """What Cython writes for a call of a nogil function that may raise."""
    assert yellow.findings("log", set(), PLANTED_BLOCK)[1] == [
        "log.c:2 a block without the GIL calls __Pyx_ErrOccurredWithGIL"
    ]
    clean = PLANTED_BLOCK.replace("__Pyx_ErrOccurredWithGIL()", "__pyx_v_bad")
    assert yellow.findings("log", set(), clean) == ({"log.c:2"}, [])


def test_a_nogil_function_that_may_raise_is_seen_in_what_cython_makes(tmp_path):
    """The checker against this version of Cython, not only against a copy of its output."""
    source = (
        "cdef int leaf(int x) except? -1 nogil:\n    return x\n\n"
        "cdef int hot(int x) noexcept nogil:\n    return leaf(x)\n\n"
        "def edge(int x):\n    with nogil:\n        x = leaf(x)\n    return x\n"
    )
    (tmp_path / "planted.pyx").write_text(source)
    command = [sys.executable, "-m", "cython", "-3", "planted.pyx"]
    subprocess.run(command, cwd=tmp_path, check=True)
    text = (tmp_path / "planted.c").read_text()
    wrong = yellow.findings("planted", {"__pyx_f_7planted_hot"}, text)[1]
    assert len(wrong) == 2, wrong


def test_declarations_are_found():
    source = "cdef inline int64_t* first(int a,\n        int b) noexcept nogil:\n    pass\n"
    assert yellow.nogil_names(source) == {"first"}


def test_no_python_in_nogil_functions():
    folder = Path(os.environ.get("BARNABAS_C_DIR", yellow.ROOT / "build" / "yellow"))
    if "BARNABAS_C_DIR" not in os.environ:
        yellow.generate_c(folder)
    count, wrong = yellow.check_all(folder)
    assert wrong == []
    assert count > 500
