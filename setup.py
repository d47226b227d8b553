"""Build: maps directories to import names and compiles every .pyx. Metadata is in pyproject.toml.

`broker/` is the package `barnabas` itself, `cext/` is `barnabas.cext`, and so on. Cython finds
.pxd files by directory, not by package_dir, so every .pxd is copied into build/names/barnabas/...
and that tree is the include path: cimport by full name only.
"""

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

if not sys.platform.startswith("linux"):
    sys.exit(
        "barnabas runs on Linux only (epoll, eventfd, sendfile), and this system is "
        f"{sys.platform}: use the container image (docs/container.md)"
    )

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.sysconfig import customize_compiler
from setuptools.command.build_ext import build_ext

DIRECTORIES = {
    "barnabas": "broker",
    "barnabas.cext": "cext",
    "barnabas.plugins": "plugins",
    "barnabas.clients": "clients",
}
HARDENING = ["-fstack-protector-strong", "-D_FORTIFY_SOURCE=3", "-Wformat-security"]
COMPILE = [os.environ.get("BARNABAS_OPTIMIZE", "-O3"), "-g1", "-fno-strict-aliasing", *HARDENING]
LIBSSL = ["-lssl", "-lcrypto"]
LINK = ["-Wl,-z,relro,-z,now", "-pthread"]
DIRECTIVES = {
    "language_level": 3,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
}

TLS = Path("cext/network/tls.pyx")  # the only module that OpenSSL is linked to
OPENSSL_PROBE = """
#include <openssl/ssl.h>
#if OPENSSL_VERSION_NUMBER < 0x10101000L
#error "too old"
#endif
int main(void) { return SSL_new(0) != 0; }
"""

CORES = len(os.sched_getaffinity(0))

os.chdir(Path(__file__).resolve().parent)
if os.environ.get("BARNABAS_SANITIZE"):
    sanitizers = os.environ["BARNABAS_SANITIZE"]  # for example "address,undefined"
    COMPILE = ["-O1", "-g1", "-fno-wrapv", "-fno-omit-frame-pointer", f"-fsanitize={sanitizers}"]
    LINK = ["-pthread", f"-fsanitize={sanitizers}"]


def packages(name: str, directory: str) -> list[str]:
    return [name] + [f"{name}.{sub}" for sub in find_packages(directory)]


def names_tree(into: Path) -> str:
    shutil.rmtree(into, ignore_errors=True)
    for name, directory in DIRECTORIES.items():
        for pattern in ("*.pxd", "*.h", "__init__.py"):
            for src in Path(directory).rglob(pattern):
                dst = into.joinpath(*name.split("."), src.relative_to(directory))
                dst.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(src, dst)  # keeps mtime: no needless rebuild
    return str(into)


def links_tree(into: Path) -> None:
    """The import names as a folder, for what reads no setuptools finder: mypy and editors
    (pyproject.toml names this folder). New modules appear in it by themselves, new folders and
    modules at the top of broker/ with the next build."""
    shutil.rmtree(into, ignore_errors=True)
    top = into / "barnabas"
    top.mkdir(parents=True)
    for entry in Path("broker").iterdir():
        (top / entry.name).symlink_to(entry.resolve())
    for name, directory in DIRECTORIES.items():
        if name != "barnabas":
            (top / name.removeprefix("barnabas.")).symlink_to(Path(directory).resolve())


def has_openssl() -> bool:
    """Whether a program with OpenSSL's headers compiles and links. BARNABAS_WITHOUT_TLS=1 builds
    as if not."""
    if os.environ.get("BARNABAS_WITHOUT_TLS"):
        return False
    compiler = new_compiler()
    customize_compiler(compiler)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(OPENSSL_PROBE)
        command = [*compiler.compiler_so, str(source), "-o", str(source.with_suffix("")), *LIBSSL]
        try:
            return subprocess.run(command, capture_output=True).returncode == 0
        except OSError:
            return False


def extensions() -> list[Extension]:
    found = []
    without = set() if has_openssl() else {TLS}
    if without:
        print("barnabas: built without TLS: no headers of OpenSSL 1.1.1 or later (libssl-dev)")
    headers = sorted(Path("cext").rglob("*.h"))
    for name, directory in DIRECTORIES.items():
        for src in sorted(set(Path(directory).rglob("*.pyx")) - without):
            module = ".".join([name, *src.relative_to(directory).with_suffix("").parts])
            found.append(
                Extension(
                    module,
                    [str(src)],
                    include_dirs=sorted({str(header.parent) for header in headers}),
                    depends=[str(header) for header in headers],
                    extra_compile_args=COMPILE,
                    extra_link_args=LINK,
                    libraries=["ssl", "crypto"] if src == TLS else [],
                    # OpenSSL's headers would put the path of the generated C into the module.
                    define_macros=[("OPENSSL_NO_FILENAMES", None)] if src == TLS else [],
                )
            )
    return found


def cythonized(extensions: list[Extension]) -> list[Extension]:
    """BARNABAS_C_DIR keeps the generated C in a folder of its own (tests/layering reads it)."""
    return cythonize(
        extensions,
        include_path=[names_tree(Path("build/names"))],
        compiler_directives=DIRECTIVES,
        nthreads=CORES,
        annotate=bool(os.environ.get("BARNABAS_ANNOTATE")),
        build_dir=os.environ.get("BARNABAS_C_DIR"),
    )


class BuildExt(build_ext):
    """In place, the bytecode is made too, as pip does for an installed wheel: where
    PYTHONDONTWRITEBYTECODE is set, as in many containers, every start of a checkout would compile
    all its sources anew, which takes as long as the rest of the start. What is edited later is
    compiled by Python as ever."""

    def run(self) -> None:
        self._done, self._lock = 0, threading.Lock()
        super().run()
        if self.inplace or self.editable_mode:
            links_tree(Path("build/links"))
            for directory in DIRECTORIES.values():
                compileall.compile_dir(directory, quiet=1)

    def build_extension(self, extension: Extension) -> None:
        """Also says how far the build is; it compiles as many modules at a time as there are
        cores. `pip install -v` shows it."""
        super().build_extension(extension)
        with self._lock:
            self._done += 1
            print(f"[{self._done}/{len(self.extensions)}] {extension.name}", flush=True)


if __name__ == "__main__":
    setup(
        packages=[p for name, directory in DIRECTORIES.items() for p in packages(name, directory)],
        package_dir=dict(DIRECTORIES),
        package_data={"": ["py.typed", "*.pyi", "*.pxd", "*.h", "*.tsv", "*.txt", "templates/*"]},
        exclude_package_data={"": ["*.c", "*.pyx"]},
        include_package_data=False,
        zip_safe=False,
        ext_modules=cythonized(extensions()),
        cmdclass={"build_ext": BuildExt},
        options={"build_ext": {"parallel": CORES}},
    )
