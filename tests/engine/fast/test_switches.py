"""Each optimisation can be switched off, and defines nothing: arms and messages are those of the plain engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedbandit
from fedbandit.engine.fast.switches import OPTIMISATIONS, has, switched_off
from fedbandit.errors import FedbanditError

PACKAGE = Path(fedbandit.__file__).parent / "engine" / "fast"
ALL = ",".join(OPTIMISATIONS)

EFFECTS = """
import json, mmap
import numba, numpy as np
from fedbandit.engine.fast import choose_ucb, compact, memory
from fedbandit.engine.fast.coarse import coarse_copy
from fedbandit.engine.fast.row import list_length
from fedbandit.engine.fast.vectors import prefetch
from fedbandit.engine.fast.warmth import source_stamp

advice = []
class Mapping(mmap.mmap):
    def madvise(self, option, *rest):
        advice.append(option)
        super().madvise(option, *rest)
memory.mmap.mmap = Mapping
array = memory.room_for((1 << 16, 100))
del array

@numba.njit
def ahead(a):
    prefetch(a, 0)
ahead(np.zeros(8))
print(json.dumps({
    "single-precision": len(coarse_copy(np.ones((4, 20)), 1000).X) > 0,
    "recycled-mappings": len(memory._kept) > 0,
    "huge-pages": mmap.MADV_HUGEPAGE in advice,
    "prefetching": "call void @llvm.prefetch" in "".join(ahead.inspect_llvm().values()),
    "compact-rows": compact.MOST_LISTED > 0,
    "pending-lists": list_length.py_func(25) > 1,
    "spectral-bound": choose_ucb.BOUND,
    "blind-choices": choose_ucb.BLIND,
    "stamp": source_stamp(),
}))
"""

EQUAL = """
import numpy as np
import fedbandit as fb
from fedbandit.engine.fast import coarse
copied = []
def copy(X, offers, make=coarse.coarse_copy):
    copied.append(len(make(X, offers).X) > 0)
    return make(X, offers)
from fedbandit.engine.fast import choose
choose.coarse_copy = copy
env = fb.environments.homogeneous(n_clients=30, dim=18, n_arms=6, pool=20, contexts="sphere")
for system in (fb.async_linucb(gamma_upload=2.0, gamma_download=2.0), fb.sync_linucb(threshold=5.0)):
    plain, fast = (fb.simulate(system, env, 200, 3, engine=engine) for engine in ("plain", "fast"))
    assert np.array_equal(plain.arms, fast.arms)
    assert np.array_equal(plain.communication.upload_curve, fast.communication.upload_curve)
    assert np.array_equal(plain.communication.download_curve, fast.communication.download_curve)
    assert fast.communication.uploads > 0
print(any(copied))
"""


def run(script: str, without: str, **environment: str) -> str:
    env = {**os.environ, "FEDBANDIT_WITHOUT": without, **environment}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_switch_is_asked_for_where_it_says() -> None:
    """No switch without an optimisation, no optimisation that another file switches."""
    asked = {
        name: path.name
        for path in sorted(PACKAGE.glob("*.py"))
        for name in re.findall(r'has\("([a-z-]+)"\)', path.read_text(encoding="utf-8"))
    }
    assert asked.keys() == OPTIMISATIONS.keys()
    assert [name for name in OPTIMISATIONS if not has(name)] == []


def test_unknown_names_are_refused() -> None:
    assert switched_off("") == frozenset()
    with pytest.raises(FedbanditError, match=r"There is no optimisation .* 'prefetch'; did you mean 'prefetching'\?"):
        switched_off("huge-pages,prefetch")
    with pytest.raises(FedbanditError, match="There is no switch 'lists'"):
        has("lists")


@pytest.mark.skipif(sys.platform != "linux", reason="advice on memory is Linux's")
def test_each_switch_switches() -> None:
    on, off = (json.loads(run(EFFECTS, without)) for without in ("", ALL))
    assert on.pop("stamp") != off.pop("stamp"), "kernels with and without would share a cache"
    assert on == dict.fromkeys(OPTIMISATIONS, True)
    assert off == dict.fromkeys(OPTIMISATIONS, False)


@pytest.mark.parametrize("without", ["", "pending-lists,blind-choices", "compact-rows,spectral-bound", ALL])
def test_arms_and_messages_are_the_same(without: str) -> None:
    assert run(EQUAL, without, NUMBA_DISABLE_JIT="1").strip() == str("single-precision" not in without)
