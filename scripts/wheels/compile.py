"""Build a wheel by Zig's compiler: ``python compile.py ARCHITECTURE SOURCE DIST``.

The interpreter decides the ABI: a wheel for Python 3.11 only, or one for 3.12 and newer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

GLIBC = "2.28"
TOOLS = {"c++": f"c++ -target {{}}-linux-gnu.{GLIBC}", "ar": "ar", "ranlib": "ranlib"}


def toolchain(folder: Path, architecture: str) -> Path:
    """Write Zig's tools as programs, and CMake's file that names them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, arguments in TOOLS.items():
        program = folder / name
        command = arguments.format(architecture)
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {command} "$@"\n')
        program.chmod(0o755)
    # Not the memory functions of the library of C++ that is linked in, which others would take.
    (folder / "exports").write_text("{ global: PyInit__native; local: *; };\n")
    file = folder / "toolchain.cmake"
    file.write_text(
        "set(CMAKE_SYSTEM_NAME Linux)\n"
        f"set(CMAKE_SYSTEM_PROCESSOR {architecture})\n"
        f'set(CMAKE_CXX_COMPILER "{folder}/c++")\n'
        f'set(CMAKE_AR "{folder}/ar")\n'
        f'set(CMAKE_RANLIB "{folder}/ranlib")\n'
        # For nanobind, whose headers take it from Python's, which leave it out of the stable ABI.
        'set(CMAKE_CXX_FLAGS_INIT "-include cstdio")\n'
        f'set(CMAKE_MODULE_LINKER_FLAGS_INIT "-Wl,--version-script={folder}/exports")\n'
        # Zig's linker has no --dependency-file.
        "set(CMAKE_CXX_LINKER_DEPFILE_SUPPORTED FALSE)\n"
        "set(CMAKE_LINK_DEPENDS_USE_LINKER FALSE)\n"
    )
    return file


def build(architecture: str, source: Path, dist: Path) -> str:
    """Return the name of the wheel that was built into `dist`."""
    from scikit_build_core.build import build_wheel

    version = "{}{}".format(*sys.version_info)
    folder = source.parent / f"{version}-{architecture}"
    os.environ |= {
        # What the wheel is for, in place of this machine.
        "_PYTHON_HOST_PLATFORM": f"linux-{architecture}",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version}-{architecture}-linux-gnu.so",
    }
    shutil.rmtree(folder, ignore_errors=True)
    os.chdir(source)
    name = build_wheel(
        str(folder),
        {
            "build-dir": str(folder / "build"),
            "cmake.args": f"-DCMAKE_TOOLCHAIN_FILE={toolchain(folder / 'tools', architecture)}",
            # The linker has done it; the machine's own strip knows one architecture.
            "install.strip": "false",
        },
    )
    platform = f"manylinux_{GLIBC.replace('.', '_')}_{architecture}"
    command = [sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", platform]
    tagged = subprocess.run(
        [*command, folder / name], check=True, stdout=subprocess.PIPE, text=True
    )
    made = folder / tagged.stdout.split()[-1]
    made.replace(dist / made.name)
    return made.name


if __name__ == "__main__":
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        sys.exit("wheels are built by a Python with the GIL")
    print(build(sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()))
