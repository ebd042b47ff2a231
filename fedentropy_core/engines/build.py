"""Compiles native.cpp for this machine, once; where to, and what is said where it cannot be."""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

from fedentropy_core.engines import BuildError

SOURCE = Path(__file__).with_name("native.cpp")
CACHE = Path(__file__).with_name("_build")


def compiler() -> str | None:
    """$CXX, else the first C++ compiler on the PATH."""
    chosen = os.environ.get("CXX")
    candidates = [chosen] if chosen else ["c++", "g++", "clang++"]
    return next((path for path in map(shutil.which, candidates) if path), None)


def build(march: str = "native", sanitize: bool = False, folder: Path | None = None) -> Path:
    """The shared library for a CPU type; compiled only if source, flags, compiler or (for "native") CPU are new.

    It is kept in `folder`, by default beside the source, or where that cannot be written in the user's cache.
    FEDENTROPY_SANITIZE=1 asks for `sanitize`: AddressSanitizer and UndefinedBehaviorSanitizer.
    """
    cxx = compiler()
    if cxx is None:
        raise BuildError("no C++ compiler found: install g++ or clang++, or set CXX")
    flags = _flags(march, sanitize or os.environ.get("FEDENTROPY_SANITIZE") == "1")
    name = f"native-{march}-{_key(cxx, flags, march)}.so"
    folders = [folder] if folder else _folders()
    built = next((place / name for place in folders if (place / name).exists()), None)
    return built or _compile([cxx, *flags], march, name, folders)


def _folders() -> list[Path]:
    """The second one is for an installation that this user cannot write."""
    try:
        home = Path.home()
    except RuntimeError:  # as of a container's user without a name
        return [CACHE]
    return [CACHE, Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "fedentropy"]


def _compile(command: list[str], march: str, name: str, folders: list[Path]) -> Path:
    # Two processes may build at once: each writes its own file, and renaming is atomic.
    folder, temporary = _new_file(folders)
    try:
        done = subprocess.run([*command, str(SOURCE), "-o", temporary], capture_output=True, text=True)
        if done.returncode != 0:
            last_lines = "\n".join((done.stderr or done.stdout).strip().splitlines()[-12:])
            raise BuildError(f"{Path(command[0]).name} could not compile {SOURCE.name} for {march}:\n{last_lines}")
        Path(temporary).chmod(0o755)
        return Path(temporary).replace(folder / name)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _new_file(folders: list[Path]) -> tuple[Path, str]:
    """The first of the folders that can be written, and an empty file in it."""
    problems = []
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        except OSError as error:
            problems.append(f"cannot write to {folder}: {error.strerror}")
        else:
            os.close(handle)
            return folder, temporary
    raise BuildError("; ".join(problems))


def available() -> bool:
    """Whether the engine can be used here; builds it if needed. A failing compiler is worth a warning, none is not."""
    if compiler() is None:
        return False
    try:
        build()
    except BuildError as error:
        warnings.warn(str(error), stacklevel=2)
        return False
    return True


def _flags(march: str, sanitize: bool) -> list[str]:
    # On ARM not every compiler takes -march=native. Contraction off: native.cpp says itself which operations are fused.
    on_arm = platform.machine() in ("arm64", "aarch64")
    cpu = "-mcpu=native" if on_arm and march == "native" else f"-march={march}"
    flags = ["-std=c++17", "-O3", cpu, "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno"]
    if sanitize:
        flags += ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    return flags


def _key(cxx: str, flags: list[str], march: str) -> str:
    version = subprocess.run([cxx, "--version"], capture_output=True, text=True).stdout
    parts = [SOURCE.read_text(), *flags, version, _cpu_model() if march == "native" else ""]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _cpu_model() -> str:
    """What -march=native depends on: a shared folder may be seen by machines of several kinds."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or platform.machine()
    wanted = ("model name", "flags", "CPU implementer", "CPU part", "Features")
    first_cpu = info.read_text().split("\n\n")[0]
    return "\n".join(line for line in first_cpu.splitlines() if line.startswith(wanted))


def announce() -> None:
    """Builds the engine for this machine and says so in one line, or what is used instead."""
    if compiler() is None:
        print("native engine: no C++ compiler found, the slower reference engine will be used")
        return
    try:
        build()
        print("native engine: built for this CPU")
    except BuildError as error:
        print(f"native engine: {error}\nthe slower reference engine will be used")
