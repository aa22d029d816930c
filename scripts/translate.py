"""Translate stdin to stdout, line for line.

    python scripts/translate.py checkpoint=runs/.../best.safetensors < test.de > test.en

Line n of the output translates line n of the input; a blank line stays blank.
With num_best=3, each line gives up to three lines: number, translation and score, separated
by tabs. Words that the model does not know are named on stderr at the end.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from seq2seq.command_line import command
from seq2seq.config import TranslateConfig
from seq2seq.data.corpus import read_stream
from seq2seq.decoding.opening import open_translator, report_unknown, unknown_tokens
from seq2seq.decoding.translator import Translator
from seq2seq.ending import write
from seq2seq.evaluation.metrics import one_line

CHUNK = 4096  # lines translated at a time, so that long inputs need no more memory


@command("translate", TranslateConfig)
def main(config: TranslateConfig) -> None:
    if sys.stdin is None or sys.stdout is None:
        raise ValueError("stdin or stdout is closed: give both, as in < sentences > translations")
    translator, _ = open_translator(config)
    for text in translated(translator, sys.stdin.buffer, config.num_best):
        write(text)


def translated(translator: Translator, stream: Iterable[bytes], num_best: int) -> Iterator[str]:
    """Lines of output for lines of input, a chunk as one text."""
    done = 0
    unknown: Counter[str] = Counter()
    sentences = read_stream(stream, "stdin")
    while lines := list(islice(sentences, CHUNK)):
        found = translator.translate_num_best(lines, num_best)
        if num_best == 1:
            yield "\n".join(one_line(best.text) for (best,) in found)
        else:
            yield "\n".join(
                # A tab in a translation would be one more column.
                f"{number}\t{one_line(best.text).expandtabs(1)}\t{best.score:.4f}"
                for number, bests in enumerate(found, start=done + 1)
                for best in bests
            )
        done += len(lines)
        unknown += unknown_tokens(translator, (bests[0] for bests in found))
    report_unknown(unknown)


if __name__ == "__main__":
    main()
