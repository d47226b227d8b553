"""Wheels of plugins for tests, one of them with C code."""

import base64
import hashlib
import subprocess
import sysconfig
import zipfile

from packaging.tags import sys_tags

C_CODE = """
#include <Python.h>
static PyObject *upper(PyObject *self, PyObject *value) {
    PyObject *made = PyBytes_FromStringAndSize(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    char *at = PyBytes_AS_STRING(made);
    for (Py_ssize_t i = 0; i < PyBytes_GET_SIZE(made); i++)
        if (at[i] >= 'a' && at[i] <= 'z') at[i] -= 32;
    return made;
}
static PyMethodDef methods[] = {{"upper", upper, METH_O, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_loud", "", -1, methods};
PyMODINIT_FUNC PyInit__loud(void) { return PyModule_Create(&module); }
"""
PLUGIN = """
from barnabas import hookimpl
from barnabas.hooks import Record, Replace
from _loud import upper

class Loud:
    @hookimpl
    def intercept_produce(self, batch):
        return Replace([Record(upper(row.value)) for row in batch.records])
"""


def best_tag() -> str:
    return str(next(iter(sys_tags())))


def write_wheel(folder, name, files, version="1.0", tag="py3-none-any", requires=(), entry=""):
    """Writes NAME-VERSION-TAG.whl with `files` (path in the wheel: bytes or text)."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    lines = [f"Requires-Dist: {row}\n" for row in requires]
    files = dict(files) | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(lines),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n",
    }
    if entry:
        files[f"{info}/entry_points.txt"] = f"[barnabas.plugins]\n{entry}\n"
    folder.mkdir(exist_ok=True)
    path = folder / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        rows = []
        for place, data in files.items():
            data = data.encode() if isinstance(data, str) else data
            archive.writestr(place, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{place},sha256={digest},{len(data)}")
        archive.writestr(f"{info}/RECORD", "\n".join(rows) + f"\n{info}/RECORD,,\n")
    return path


def write_loud(folder):
    """Writes the wheel of a plugin `loud`, which makes values upper-case by a function in C."""
    folder.mkdir(exist_ok=True)
    source, made = folder / "loud.c", folder / "loud.so"
    source.write_text(C_CODE)
    include = sysconfig.get_paths()["include"]
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", "-o", made, source], check=True)
    files = {
        "loud.py": PLUGIN,
        f"_loud{sysconfig.get_config_var('EXT_SUFFIX')}": made.read_bytes(),
    }
    source.unlink()
    made.unlink()
    return write_wheel(folder, "loud", files, tag=best_tag(), entry="loud = loud:Loud")
