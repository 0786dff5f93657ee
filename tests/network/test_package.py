"""The package says what is in it, and its client loads no more than a device needs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import fedbandit.network

ROOT = Path(fedbandit.network.__file__).parent
LIGHT = {"numpy", "websockets", "fedbandit", *sys.stdlib_module_names}
HEAVY = {"numba", "llvmlite", "scipy", "pandas", "networkx", "dp_accounting", "yaml", "starlette", "uvicorn",
         "cryptography", "psycopg", "opendp", "matplotlib"}  # fmt: skip
NOT_OURS = ("fedbandit.engine", "fedbandit.network.coordinator", "fedbandit.network.certificates")


def test_the_docstring_names_every_module() -> None:
    text = fedbandit.network.__doc__ or ""
    modules = [path.stem for path in ROOT.glob("*.py") if path.stem != "__init__"]
    packages = [f"{path.parent.name}/" for path in ROOT.glob("*/__init__.py")]
    assert not [name for name in modules + packages if f"`{name}`" not in text]


def test_the_client_loads_no_compiler_and_no_server() -> None:
    code = "import sys, fedbandit as fb; fb.Client; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(done.stdout))
    assert not loaded & HEAVY


def imported(path: Path) -> set[str]:
    """Modules that a file imports when it is loaded, not in its functions."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            found.add(str(node.module))
    return found


def test_the_client_imports_nothing_heavy() -> None:
    """NumPy, websockets (when it connects) and modules of ours; none of the coordinator, none of the fast engine."""
    waiting = sorted(ROOT.glob("client/*.py"))
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        for module in imported(path):
            assert module.partition(".")[0] in LIGHT, f"{path.name} imports {module}"
            assert not module.startswith(NOT_OURS), f"{path.name} imports {module}"
            if module.startswith("fedbandit.network."):
                parts = module.split(".")[2:]
                for file in (ROOT.joinpath(*parts).with_suffix(".py"), ROOT.joinpath(*parts, "__init__.py")):
                    if file.exists() and file not in seen:
                        waiting.append(file)
    assert {path.stem for path in seen} >= {"client", "connection", "durable", "invitation", "envelope", "store"}
