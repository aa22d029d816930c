"""Measure the speed and memory of training, attention, decoding and loading on this machine.

    python scripts/benchmark.py                        everything, about ten minutes on two cores
    python scripts/benchmark.py 'parts=[training,peak]' repeats=20
    python scripts/benchmark.py 'parts=[loading,memory]' large_pairs=10000000

The benchmark trains on random words with the sizes and lengths of Multi30k, so it needs no data. It
compares four variants of training: the usual tutorial code (keys and output layer recomputed at
every step), the plain model, the fast path, and the fast path in bfloat16. The variants take turns,
so their ratios are reliable even on a noisy machine. The table goes to stdout; every measurement is
written to runs/benchmark/<date>_<time>/benchmark.json.
"""

if __name__ == "__main__":  # before the imports, which take seconds
    from seq2seq.cli.exit import begin

    begin()


import json
import logging
import sys

from seq2seq.benchmark.report import report
from seq2seq.benchmark.suite import run_benchmark
from seq2seq.cli.command import command, output_dir
from seq2seq.cli.exit import write
from seq2seq.config.scripts import BenchmarkConfig


@command("benchmark", BenchmarkConfig)
def main(config: BenchmarkConfig) -> None:
    folder = output_dir()
    result = {"command": " ".join(sys.argv)} | run_benchmark(config, folder)
    path = folder / "benchmark.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    logging.info("all measurements: %s", path)
    write(report(result))


if __name__ == "__main__":
    main()
