"""Writes the module of sysconfig's variables for a build with zig, for this machine or another one:
target.py EXT_SUFFIX ARCH CFLAGS LDFLAGS. _PYTHON_SYSCONFIGDATA_NAME names it. With it each Python
compiles alike, however it was built itself."""

import sys

suffix, arch, cflags, ldflags = sys.argv[1:]
compiler = f"barnabas-zig-{arch}"
print(
    "build_time_vars =",
    {
        "AR": "zig ar",
        "ARFLAGS": "rcs",
        "CC": compiler,
        "CCSHARED": "-fPIC",
        "CFLAGS": f"-DNDEBUG -fwrapv -Wall {cflags}",
        "CXX": "false",
        "EXT_SUFFIX": suffix,
        "LDCXXSHARED": "false",
        "LDSHARED": f"{compiler} -shared {ldflags}",
        "SHLIB_SUFFIX": ".so",
        "SOABI": suffix.removeprefix(".").removesuffix(".so"),
    },
)
