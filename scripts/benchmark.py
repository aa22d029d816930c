"""Measure what training, attention, decoding and loading cost here, each way beside the others.

    python scripts/benchmark.py                                all, about ten minutes on two cores
    python scripts/benchmark.py 'parts=[training,peak]' repeats=20
    python scripts/benchmark.py 'parts=[loading,memory]' large_pairs=10000000

The task is Multi30k's in sizes and lengths, of random words: no data are needed. Ways of training:
as tutorials have it (keys and output layer at every step), the plain step, the fast path, and that
in bfloat16. All take turns, so that their ratios hold on a noisy machine too. The table goes to
stdout, and all figures, with every turn, to runs/benchmark/<date>_<time>/benchmark.json.
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
    logging.info("all figures: %s", path)
    write(report(result))


if __name__ == "__main__":
    main()
