"""A checkpoint of an earlier version, whose settings had other names, still works the same."""

import pytest
import torch
from conftest import ROOT

from seq2seq.config.training import DecodingConfig
from seq2seq.data.reading import ParallelFiles, read_lines
from seq2seq.scoring.evaluate import evaluate, read_evaluation_set
from seq2seq.search.loading import load_translator

FOLDER = ROOT.parent / "shared" / "data" / "v1"
SAMPLE = ROOT / "data" / "sample"


@pytest.mark.guarantee(
    "Checkpoints of earlier versions give the same translations and scores as before."
)
@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the old checkpoint in ../shared/data/v1")
def test_an_old_checkpoint_gives_the_same_translations_and_scores():
    decoding = DecodingConfig(beam_size=5, length_penalty=1.0)
    cpu = torch.device("cpu")
    translator, _ = load_translator(FOLDER / "sample.safetensors", decoding, cpu)
    files = ParallelFiles(*(SAMPLE / f"test.{kind}" for kind in ("de", "en", "align")))
    result = evaluate(translator, read_evaluation_set(files))
    hypotheses = [translation.text for translation in result.translations]
    assert hypotheses == list(read_lines(FOLDER / "test.hypotheses.en"))
    # As its README has them; the signature of BLEU without the version of sacreBLEU.
    expected = {"bleu": 96.5972, "chrf": 98.1684, "perplexity": 1.1329, "aer": 0.1436}
    assert {name: round(result.values[name], 4) for name in expected} == expected
    signature = result.scores["bleu"]["signature"]
    assert signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
