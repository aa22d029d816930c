"""Translate stdin to stdout, line for line.

    python scripts/translate.py checkpoint=runs/.../best.safetensors < test.de > test.en

Line n of the output translates line n of the input; a blank line stays blank.
With num_best=3, each line gives up to three lines: number, translation and score, separated
by tabs.
"""

import sys
from pathlib import Path

from seq2seq import runtime
from seq2seq.command_line import command
from seq2seq.config import TranslateConfig
from seq2seq.decoding.translator import load_translator, text_lines
from seq2seq.evaluation.metrics import one_line

CHUNK = 4096  # lines translated at a time, so that long inputs need no more memory


@command("translate", TranslateConfig)
def main(config: TranslateConfig) -> None:
    runtime.set_threads(config.threads)
    device = runtime.select_device(config.device)
    translator, _ = load_translator(Path(config.checkpoint), config.decoding, device)
    # UTF-8 and LF, whatever the locale and the platform.
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    done = 0
    for lines in text_lines(sys.stdin.buffer, CHUNK):
        for number, best in enumerate(translator.translate_num_best(lines, config.num_best), done):
            for translation in best:
                text = one_line(translation.text)
                print(
                    text
                    if config.num_best == 1
                    else f"{number + 1}\t{text}\t{translation.score:.4f}"
                )
        sys.stdout.flush()
        done += len(lines)


if __name__ == "__main__":
    main()
