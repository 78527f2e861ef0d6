"""Say whether the wheels and the sdist of a folder may be published: ``python audit.py DIST``."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

from elftools.elf.elffile import ELFFile

LARGEST = 2_750_000
NEWEST_GLIBC = (2, 28)
NAME = re.compile(
    r"dgpuhash-[\w.]+-(cp311-cp311|cp312-abi3)-manylinux_(\d+)_(\d+)_(x86_64|aarch64)\.whl"
)
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
WANTED = (
    "dgpuhash/__init__.py",
    "dgpuhash/py.typed",
    "dgpuhash/kernels/core/platform.cuh",
    "dgpuhash/cluster/slurm.sbatch",
    "dist-info/licenses/LICENSE",
    "dist-info/licenses/NOTICE",
)
IN_SOURCE = ("CMakeLists.txt", "pyproject.toml", "kernels/host/extension.cpp", "NOTICE", "LICENSE")


def exported(module: ELFFile) -> set[str]:
    """Return the names that others can bind to."""
    symbols = module.get_section_by_name(".dynsym").iter_symbols()
    return {symbol.name for symbol in symbols if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"}


def faults(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel."""
    named = NAME.fullmatch(wheel.name)
    if named is None:
        return ["its name tells another Python, ABI or platform"]
    abi, *glibc, machine = named.groups()
    found = []
    if tuple(map(int, glibc)) > NEWEST_GLIBC:
        found.append("it needs a newer glibc than 2.28")
    if wheel.stat().st_size > LARGEST:
        found.append(f"it has {wheel.stat().st_size:,} bytes, more than {LARGEST:,}")
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        found += [
            f"{name} is missing" for name in WANTED if not any(n.endswith(name) for n in names)
        ]
        if stray := [
            name for name in names if not re.match(r"dgpuhash(/|-[\w.]+\.dist-info/)", name)
        ]:
            found.append(f"{stray[0]} is no part of it")
        (native,) = (name for name in names if name.startswith("dgpuhash/_native"))
        ending = ".abi3.so" if abi == "cp312-abi3" else f".cpython-311-{machine}-linux-gnu.so"
        if not native.endswith(ending):
            found.append(f"{native} is not what its Python looks for: _native{ending}")
        with archive.open(native) as stream:
            module = ELFFile(stream)
            if module["e_machine"] != MACHINES[machine]:
                found.append(f"its module is for {module['e_machine']}")
            if own := exported(module) - {"PyInit__native", "_init", "_fini"}:
                found.append(
                    f"its module exports {len(own)} names of its own, {min(own)} among them"
                )
    return found + said_by_auditwheel(wheel, ".".join(glibc)) + said_by_abi3audit(wheel, abi)


def said_by_auditwheel(wheel: Path, glibc: str) -> list[str]:
    """Return a fault where the module's symbols are of another glibc or another library."""
    said = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True
    )
    text = " ".join(said.stdout.split())
    tag = re.search(r'platform tag: "manylinux_(\d+)_(\d+)_', text)
    if said.returncode or tag is None:
        return [f"auditwheel says: {text or said.stderr}"]
    if tuple(map(int, tag.groups())) > tuple(map(int, glibc.split("."))):
        return [f"auditwheel allows manylinux_{'_'.join(tag.groups())} only"]
    return []


def said_by_abi3audit(wheel: Path, abi: str) -> list[str]:
    """Return a fault where a module of the stable ABI takes more than that."""
    if abi != "cp312-abi3":
        return []
    said = subprocess.run(
        [sys.executable, "-m", "abi3audit", "--strict", "--report", wheel],
        capture_output=True, text=True,
    )  # fmt: skip
    return [] if said.returncode == 0 else [f"abi3audit says: {said.stdout}{said.stderr}"]


def main(dist: Path) -> int:
    """Print each file with what is wrong; return the number of faults."""
    wheels, total = sorted(dist.glob("*.whl")), 0
    if not wheels:
        sys.exit(f"there is no wheel in {dist}")
    for wheel in wheels:
        wrong = faults(wheel)
        total += len(wrong)
        print(f"{wheel.name}  {wheel.stat().st_size:,} bytes  {'; '.join(wrong) or 'right'}")
    for source in dist.glob("*.tar.gz"):
        with tarfile.open(source) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        missing = [name for name in IN_SOURCE if name not in names]
        total += len(missing)
        said = f"{', '.join(missing)} missing" if missing else "right"
        print(f"{source.name}  {source.stat().st_size:,} bytes  {said}")
    return total


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) != 0)
