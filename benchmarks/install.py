"""What an installation weighs: real virtual environments, with nothing and with some extras.

Packages are those of others, without pip; megabytes are those of everything that was installed, compiled Python files
included. Seconds are for `import fedbandit as fb; fb.Client` in a new process, the best of several.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from benchmarks.timing import table

EXTRAS = ("", "fast", "private", "server")
ROOT = Path(__file__).parents[1]
REPEATS = 10

INSPECT = """
import json, pathlib, sysconfig
from importlib import metadata
site = pathlib.Path(sysconfig.get_paths()["purelib"])
ours = {d.metadata["Name"] for d in metadata.distributions() if d.metadata["Name"] not in ("pip", "setuptools")}
files = (file for file in site.rglob("*") if file.is_file())
kept = (file for file in files if not file.relative_to(site).parts[0].startswith(("pip", "setuptools")))
print(json.dumps([sorted(ours - {"fedbandit"}), sum(file.stat().st_size for file in kept)]))
"""
IMPORT = (
    "import time; begin = time.perf_counter(); import fedbandit as fb; fb.Client; print(time.perf_counter() - begin)"
)


def main() -> None:
    """Print what each installation has."""
    lines = []
    for extra in EXTRAS:
        with tempfile.TemporaryDirectory() as folder:
            packages, size, seconds = install(Path(folder), extra)
        lines.append([f"[{extra}]" if extra else "base", f"{len(packages)}", f"{size / 1e6:.0f}", f"{seconds:.2f}"])
        if not extra:
            print(f"base: {', '.join(packages)}\n", flush=True)
    print(table(["installation", "packages", "MB", "seconds until fb.Client"], lines))


def install(folder: Path, extra: str) -> tuple[list[str], int, float]:
    """Packages, bytes, and seconds of an import."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str) -> str:
        done = subprocess.run([python, *words], check=True, capture_output=True, text=True, env=alone, cwd=folder)
        return done.stdout

    try:
        run("-m", "pip", "install", "--quiet", f"{ROOT}[{extra}]" if extra else str(ROOT))
    except subprocess.CalledProcessError as error:
        sys.exit(f"pip could not install {extra or 'the base'}: {error.stderr.strip().splitlines()[-1]}")
    packages, size = json.loads(run("-c", INSPECT))
    return packages, size, min(float(run("-c", IMPORT)) for _ in range(REPEATS))
