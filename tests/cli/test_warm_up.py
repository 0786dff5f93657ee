"""`fedbandit warm-up`: whoever has the compiler can compile, whatever else is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

SCRIPT = """
import sys
for name in "dp_accounting scipy cryptography opendp pandas starlette matplotlib yaml".split():
    sys.modules[name] = None
from fedbandit.cli.main import main
sys.exit(main(["warm-up", "--json"]))
"""


def test_the_compiler_is_all_that_it_needs() -> None:
    """As after pip install 'fedbandit[fast]': every kernel is run, here uncompiled, without any other extra."""
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"seconds": 0.0}
