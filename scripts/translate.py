"""Translate stdin to stdout, line by line.

    python scripts/translate.py checkpoint=runs/.../best.safetensors < test.de > test.en

Line n of the output translates line n of the input; a blank line stays blank. Lines are translated
in chunks of 4,096. A line that is not UTF-8 stops the program with an error, and no line of its
chunk is translated. With num_best=3, each input line yields up to three output lines: line number,
translation and score, separated by tabs. At the end, the number of unknown source tokens and the
five most frequent ones are reported on stderr.
"""

if __name__ == "__main__":  # before the imports, which take seconds
    from seq2seq.cli.exit import begin

    begin()


import sys
from collections.abc import Iterable, Iterator
from itertools import islice

from seq2seq.cli.command import command
from seq2seq.cli.exit import write
from seq2seq.config.scripts import TranslateConfig
from seq2seq.data.reading import read_stream
from seq2seq.data.vocabulary import UnknownTokenCounter
from seq2seq.evaluation.bleu import replace_newlines
from seq2seq.search.loading import open_translator
from seq2seq.search.translator import Translator

CHUNK = 4096  # lines translated at a time: memory does not grow with the input


@command("translate", TranslateConfig)
def main(config: TranslateConfig) -> None:
    if sys.stdin is None or sys.stdout is None:
        raise ValueError("stdin or stdout is closed: give both, as in < sentences > translations")
    translator = open_translator(config)[0]
    unknown = UnknownTokenCounter("source", translator.source.vocabulary)
    for text in translated(translator, sys.stdin.buffer, config.num_best, unknown):
        write(text)
    unknown.report()


def translated(
    translator: Translator, stream: Iterable[bytes], num_best: int, unknown: UnknownTokenCounter
) -> Iterator[str]:
    """Yield the output lines of each chunk as one text, and count unknown source tokens."""
    done = 0
    sentences = read_stream(stream, "stdin")
    while lines := list(islice(sentences, CHUNK)):
        found = translator.translate_num_best(lines, num_best)
        for best, *_ in found:
            unknown.count(best.source_tokens[:-1])
        if num_best == 1:
            yield "\n".join(replace_newlines(best.text) for (best,) in found)
        else:
            yield "\n".join(
                # A tab in a translation would add a column.
                f"{number}\t{replace_newlines(best.text).expandtabs(1)}\t{best.score:.4f}"
                for number, bests in enumerate(found, start=done + 1)
                for best in bests
            )
        done += len(lines)


if __name__ == "__main__":
    main()
