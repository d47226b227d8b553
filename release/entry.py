"""The main program of the one-file executable: `barnabas`, and `-m MODULE ...` as Python's, because
the broker starts processes of its own by sys.executable (hooks/process.py,
cli/development_cluster.py)."""

import os
import sys

# The loader of the executable sets it for this process; other programs must not find our libraries.
# Where /proc is not mounted our own processes find them in no other way.
if os.path.lexists("/proc/self/exe"):
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    if before is not None:
        os.environ["LD_LIBRARY_PATH"] = before
    else:
        os.environ.pop("LD_LIBRARY_PATH", None)

if sys.argv[1:2] == ["-m"] and len(sys.argv) > 2:
    import runpy

    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    from barnabas.cli import main

    sys.exit(main())
