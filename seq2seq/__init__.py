"""RNN encoder, attention decoder: trained, inspected and scored.

Reading order, the way a sentence travels:

    data/corpus.py         two files become sentence pairs
    data/tokenizer.py      sentences become tokens
    data/vocabulary.py     tokens become ids
    data/batching.py       ids become padded batches
    model/encoder.py       source ids become annotations
    attention/             annotations and a decoder state become a context
    model/decoder.py       contexts become logits
    decoding/              logits become translations
    evaluation/            translations become scores and pictures
    training/              all of it, repeated until the scores are good
    benchmark/             all of it, by the clock

Shape letters, everywhere:

    B sentences in the batch    S source positions      T target positions
    V vocabulary entries        E embedding units       H decoder state units
    C annotation units          A attention units       O deep output units
    K hypotheses in the beam    N rows of a search (live hypotheses of all sentences)
    L layers                    G gates of a recurrent cell
"""
