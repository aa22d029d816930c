"""Small faults are put into the code, one at a time: the tests have to notice each of them.

    make mutants                                  up to 60 faults of each module
    make mutants ARGS="--sample 1000"             all of them
    make mutants ARGS="--only beam --seed 2"      others, of one module

Prints every fault that no test notices, then a table; the exit status is 1 unless all of them are
known to be harmless (``faults.HARMLESS``).

Tests are collected once. Each fault lives in a process forked from there, which ends at the first
test that fails.
"""

import argparse
import importlib
import os
import random
import signal
import sys
from collections import Counter
from multiprocessing import Value
from pathlib import Path

import pytest
import torch
from faults import Fault, faults, install
from hypothesis import HealthCheck, Phase, settings

TESTS = {  # of each module
    "attention.masking": "attention/test_masking.py",
    "decoding.beam": "decoding/test_search.py",
    "decoding.hypothesis": "decoding/test_search.py",
    "decoding.greedy": "decoding/test_search.py",
    "evaluation.metrics": "evaluation/test_metrics.py",
    "data.batching": "data/test_batching.py",
}
LEFT_OUT = "not compiled and not sacrebleu_on"  # slow, and no other formulas than the rest
MAX_CASES = 5  # of a test with parameters
TEST_SECONDS = 4.0  # of the processor; what takes longer is in an endless loop


class Runner:
    """A plugin of pytest, which runs the collected tests once for each fault."""

    def __init__(self, name: str, sample: int, seed: int):
        self.module = importlib.import_module(f"seq2seq.{name}")
        found = list(faults(Path(str(self.module.__file__))))
        drawn = random.Random(seed).sample(range(len(found)), min(sample, len(found)))
        self.faults = [found[number] for number in sorted(drawn)]
        self.random = random.Random(seed)
        self.last_test = Value("i")  # that the last process began
        self.counts: Counter[str] = Counter()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = self.some_cases(session.items)
        if self.is_noticed(session, items, None):
            pytest.exit(f"{items[self.last_test.value].nodeid} fails without any fault.", 2)
        for fault in self.faults:
            if self.is_noticed(session, items, fault):
                self.counts["noticed"] += 1
                # First from now on: faults of one place tend to be noticed by one test.
                items.insert(0, items.pop(self.last_test.value))
                continue
            excuse = fault.excuse()
            self.counts["harmless" if excuse else "survived"] += 1
            print(f"  {excuse or 'SURVIVED'}:\n    {fault.true}\n    {fault.faulty}", flush=True)
        return True

    def some_cases(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """Every test, but of one with hundreds of parameters only a few."""
        cases: Counter[str] = Counter()
        drawn = []
        for item in self.random.sample(items, len(items)):
            test = item.nodeid.partition("[")[0]
            cases[test] += 1
            if cases[test] <= MAX_CASES:
                drawn.append(item)
        return sorted(drawn, key=items.index)

    def is_noticed(
        self, session: pytest.Session, items: list[pytest.Item], fault: Fault | None
    ) -> bool:
        """Does a test fail, or never end?"""
        child = os.fork()
        if child:
            return os.waitpid(child, 0)[1] != 0
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            if fault:
                install(fault, self.module)
            for number, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
                self.last_test.value = number
                signal.setitimer(signal.ITIMER_PROF, TEST_SECONDS)  # whose signal is deadly
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    os._exit(1)
            os._exit(0)
        finally:
            os._exit(1)  # whatever happens, the child does not go on with the parent's work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sample", type=int, default=60, help="most faults of a module")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--only", default="", help="modules whose name contains this")
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # a process with threads must not be forked
    settings.register_profile(
        "mutants",
        max_examples=15,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],  # no search for the smallest example
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutants")
    table = []
    for name, tests in TESTS.items():
        if chosen.only in name:
            print(name, flush=True)
            runner = Runner(name, chosen.sample, chosen.seed)
            options = ["--noconftest", "-s", "--disable-warnings", "-p", "no:cacheprovider"]
            options += ["-k", LEFT_OUT, str(Path(__file__).parent / tests)]
            pytest.main(options, plugins=[runner])
            table.append((name, runner.counts))
    results = ("noticed", "harmless", "survived")
    print(f"{'module':20}{'faults':>12}", *(f"{result:>12}" for result in results))
    for name, counts in table:
        print(f"{name:20}{counts.total():12}", *(f"{counts[result]:12}" for result in results))
    sys.exit(any(counts["survived"] or not counts for _, counts in table))


if __name__ == "__main__":
    main()
