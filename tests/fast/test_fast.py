"""The fast recurrences equal the plain ones in every value and every gradient."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from seq2seq.attention.distribution import LocalMonotonic, Soft
from seq2seq.attention.pooling import Attention
from seq2seq.attention.scoring import AdditiveScore, ConcatScore
from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
from seq2seq.fast.accelerate import accelerate
from seq2seq.fast.decoder import is_supported, unroll
from seq2seq.fast.encoder import read
from seq2seq.fast.search import FastStep
from seq2seq.model import decoder as plain
from seq2seq.model.build import build_layers, build_model
from seq2seq.model.cells import CELLS, PaperGRUCell, RecurrentState
from seq2seq.model.decoder import Decoder, DecoderState, Memory
from seq2seq.model.encoder import CellLayers
from seq2seq.model.encoder import read as plain_read
from seq2seq.model.output import DeepOutput
from seq2seq.model.products import is_packable, packed_linear

every_cell = pytest.mark.parametrize("cell", CELLS)
few_examples = settings(max_examples=10)  # for each cell
sizes = st.integers(1, 5)


@st.composite
def lengths(draw, least=1):
    """Draw the lengths of the sentences of a batch."""
    return draw(st.lists(st.integers(least, 6), min_size=1, max_size=4).filter(any))


def mask_of(lengths, size=None):
    """Return a mask that is True at the first ``lengths`` positions of each row."""
    return torch.arange(size or max(lengths)) < torch.tensor(lengths).unsqueeze(1)


def leaf(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


class DecoderCase:
    """A decoder and its inputs, all with gradients."""

    def __init__(self, cell, lengths, sizes=(3, 4, 5, 6), dtype=torch.float64, scale=1.0):
        """``sizes``: T, H, C and A."""
        torch.manual_seed(1)
        (num_steps, state, annotation, hidden), batch = sizes, len(lengths)
        output = DeepOutput(
            state_size=state,
            embedding_size=2,
            context_size=annotation,
            size=2,
            vocabulary_size=7,
            activation="tanh",
            dropout=0.0,
        )
        self.decoder = Decoder(
            nn.Embedding(7, 2),
            CELLS[cell](state),
            Attention(AdditiveScore(state, annotation, hidden)),
            output,
            annotation_size=annotation,
            final_size=2,
            dropout=0.0,
            output_state="current",
        ).to(dtype)
        assert is_supported(self.decoder)
        self.mask = mask_of(lengths)
        self.inputs = {
            "words": leaf(batch, num_steps, 2, dtype=dtype),
            "hidden": leaf(batch, state, dtype=dtype),
            "keys": (scale * leaf(batch, max(lengths), hidden, dtype=dtype)).detach(),
            "annotations": leaf(batch, max(lengths), annotation, dtype=dtype),
        }
        self.inputs["keys"].requires_grad_()
        if cell == "lstm":
            self.inputs["cell"] = leaf(batch, state, dtype=dtype)
        # The others are used before or after the recurrence.
        unrolled = ("input_layer", "context_layer", "cell", "attention.score")
        for name, parameter in self.decoder.named_parameters():
            if name.startswith(unrolled) and "key_layer" not in name:
                self.inputs[name] = parameter

    def _call(self, unroll):
        recurrent = RecurrentState(self.inputs["hidden"], self.inputs.get("cell"))
        memory = Memory(self.inputs["annotations"], self.inputs["keys"], self.mask)
        hiddens, contexts, weights, last = unroll(
            self.decoder, self.inputs["words"], memory, DecoderState(recurrent, None)
        )
        outputs = {"hiddens": hiddens, "contexts": contexts, "weights": weights}
        outputs["last hidden"], last_cell = last.recurrent
        return outputs if last_cell is None else outputs | {"last cell": last_cell}

    def plain(self):
        return self._call(plain.unroll)

    def fast(self):
        return self._call(unroll)


class EncoderCase:
    """Layers of an encoder and their inputs, all of which have gradients."""

    def __init__(self, cell, lengths, sizes=(4, 3), num_layers=1, dtype=torch.float64):
        """``sizes``: E and H."""
        torch.manual_seed(1)
        self.layers = build_layers(CELLS[cell], *sizes, num_layers, 0.0).to(dtype)
        self.mask = mask_of(lengths)
        embedded = leaf(*self.mask.shape, sizes[0], dtype=dtype)
        self.inputs = {"embedded": embedded} | dict(self.layers.named_parameters())

    def plain(self):
        annotations, final = self.layers(self.inputs["embedded"], self.mask)
        return {"annotations": annotations, "final": final}

    def fast(self):
        annotations, final = read(self.layers, self.inputs["embedded"], self.mask)
        return {"annotations": annotations, "final": final}


either_part = pytest.mark.parametrize("make", [DecoderCase, EncoderCase])


def loss_of(outputs):
    """Weight every number of every output differently."""
    torch.manual_seed(2)
    return sum((x * torch.randn(x.shape, dtype=x.dtype)).sum() for x in outputs.values())


def gradients(outputs, inputs):
    found = torch.autograd.grad(loss_of(outputs), list(inputs.values()), allow_unused=True)
    return dict(zip(inputs, found, strict=True))


def assert_equal(case, **tolerance):
    fast, plain = case.fast(), case.plain()
    assert_close(fast, plain, **tolerance)
    assert_close(gradients(fast, case.inputs), gradients(plain, case.inputs), **tolerance)


SAME = pytest.mark.guarantee("The fast path has the results and gradients of the plain model.")


@SAME
@every_cell
@few_examples
@given(lengths(), st.tuples(sizes, sizes, sizes, sizes))
@example([1], (1, 4, 5, 6))
@example([1, 1, 1], (1, 4, 5, 6))
@example([3, 0, 2], (3, 4, 5, 6))
def test_fast_decoder_equals_plain_decoder(cell, lengths, sizes):
    assert_equal(DecoderCase(cell, lengths, sizes))


@SAME
@every_cell
@few_examples
@given(lengths(), st.tuples(sizes, sizes), st.integers(1, 3))
@example([1], (4, 3), 1)
@example([1, 1, 1], (4, 3), 1)
def test_fast_encoder_equals_plain_encoder(cell, lengths, sizes, num_layers):
    assert_equal(EncoderCase(cell, lengths, sizes, num_layers))


@every_cell
def test_single_precision_is_accurate(cell):
    lengths = [12, 3, 7, 12, 1]
    tolerance = {"rtol": 1e-4, "atol": 1e-5}
    assert_equal(DecoderCase(cell, lengths, (9, 24, 32, 40), torch.float32), **tolerance)
    assert_equal(EncoderCase(cell, lengths, (20, 24), 2, torch.float32), **tolerance)


@SAME
@every_cell
def test_bfloat16_products_are_close_and_states_stay_float32(cell):
    case = DecoderCase(cell, [5, 3, 4], (6, 12, 16, 20), torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        fast, plain = case.fast(), case.plain()
    assert all(x.dtype == torch.float32 for x in fast.values())
    plain = {name: x.float() for name, x in plain.items()}
    assert_close(fast, plain, atol=0.02, rtol=0.02)
    assert_close(gradients(fast, case.inputs), gradients(plain, case.inputs), atol=0.1, rtol=0.1)
    assert not all(map(torch.equal, fast.values(), case.fast().values()))


@every_cell
@either_part
def test_gradient_of_each_output_and_input_alone_is_right(cell, make):
    """A model may leave an output unused, or freeze an input."""
    case = make(cell, [4, 2])
    for name in case.plain():
        fast, plain = (
            gradients({name: outputs[name]}, case.inputs) for outputs in (case.fast(), case.plain())
        )
        for key, gradient in plain.items():
            if gradient is None:  # an output of the last step does not depend on every input
                assert fast[key] is None or (fast[key] == 0).all()
            else:
                assert_close(fast[key], gradient)
    whole = gradients(case.plain(), case.inputs)
    for name in case.inputs:
        for other, tensor in case.inputs.items():
            tensor.requires_grad_(other == name)
        loss_of(case.fast()).backward()
        assert_close(case.inputs[name].grad, whole[name])
        case.inputs[name].grad = None
        assert all(tensor.grad is None for tensor in case.inputs.values())


@SAME
@every_cell
@either_part
def test_padding_has_no_weight_no_gradient_and_no_effect(cell, make):
    case = make(cell, [2, 5, 3])
    outputs = case.fast()
    found = gradients(outputs, case.inputs)
    if make is DecoderCase:
        assert (outputs["weights"].transpose(1, 2)[~case.mask] == 0).all()
    else:
        assert (outputs["annotations"][~case.mask] == 0).all()
    for name in {"embedded", "keys", "annotations"} & case.inputs.keys():
        assert (found[name][~case.mask] == 0).all()
        assert (found[name][case.mask] != 0).all()
        case.inputs[name].data[~case.mask] = 1e3
    assert all(torch.equal(x, outputs[name]) for name, x in case.fast().items())


@SAME
@every_cell
def test_row_without_tokens_has_zero_weights_and_finite_gradients(cell):
    case = DecoderCase(cell, [3, 0, 2])
    outputs = case.fast()
    assert (outputs["weights"][1] == 0).all()
    assert (outputs["contexts"][1] == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients(outputs, case.inputs).values())


@pytest.mark.parametrize("scale", [1e-4, 20.0, 1e4])
def test_keys_of_any_size_neither_overflow_nor_lose_small_differences(scale):
    case = DecoderCase("gru", [6, 4], scale=scale)
    if scale > 100:
        assert_close(case.fast(), case.plain())
        found = gradients(case.fast(), case.inputs)
        assert all(gradient.isfinite().all() for gradient in found.values())
    else:
        assert_equal(case)


@every_cell
def test_no_tensor_is_kept_for_every_pair_of_positions(cell):
    num_steps, hidden, lengths = 30, 16, [20, 20]
    case, kept = DecoderCase(cell, lengths, (num_steps, 3, 4, hidden)), []

    def keep(tensor):
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = case.fast()
        loss_of(outputs).backward()
    assert sum(kept) < len(lengths) * num_steps * max(lengths) * hidden / 2


@every_cell
@either_part
def test_backward_can_be_repeated_and_second_derivatives_are_refused(cell, make):
    case = make(cell, [4, 2])
    inputs = list(case.inputs.values())
    loss = loss_of(case.fast())
    first = torch.autograd.grad(loss, inputs, retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(loss, inputs)))
    loss = loss_of(case.fast()).square()
    first = torch.autograd.grad(loss, inputs, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first[0].sum().backward()


@every_cell
def test_dropout_acts_between_layers_and_in_training_only(cell):
    mask = mask_of([6, 2])
    embedded = torch.randn(2, 6, 4)
    one, two = (build_layers(CELLS[cell], 4, 3, num_layers, 0.5) for num_layers in (1, 2))
    assert_close(read(one, embedded, mask), one(embedded, mask))
    assert not torch.equal(read(two, embedded, mask)[0], read(two, embedded, mask)[0])
    two.eval()
    assert_close(read(two, embedded, mask), two(embedded, mask))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_packed_linear_equals_linear_and_a_row_does_not_depend_on_the_others(dtype):
    weight, bias, rows = (torch.randn(size, dtype=dtype) for size in ((50, 33), (50,), (70, 33)))
    multiply = packed_linear(weight, bias)
    assert_close(multiply(rows), F.linear(rows, weight, bias))
    assert_close(packed_linear(weight)(rows), F.linear(rows, weight))
    assert multiply(rows[:0]).shape == (0, 50)
    if is_packable(weight):
        for n in (1, 5, 64):
            assert torch.equal(multiply(rows[:n]), multiply(rows)[:n])


@SAME
@pytest.mark.parametrize(
    ("attention", "is_fast"),
    [
        (Attention(AdditiveScore(4, 5, 6)), True),
        (Attention(AdditiveScore(4, 5, 6), coverage_size=6), False),
        (Attention(AdditiveScore(4, 5, 6), Soft("sparsemax")), False),
        (Attention(AdditiveScore(4, 5, 6), LocalMonotonic(1)), False),
        (Attention(ConcatScore(4, 5, 6)), False),
        (nn.Identity(), False),
    ],
)
def test_only_plain_additive_attention_is_accelerated(attention, is_fast):
    decoder = DecoderCase("gru", [1]).decoder
    decoder.attention = attention
    assert is_supported(decoder) == is_fast


def test_parts_without_a_fast_implementation_stay_plain():
    class NewCell(PaperGRUCell):
        pass

    model = build_model(ModelConfig(encoder_size=2, decoder_size=2), 5, 5)
    model.decoder.cell = NewCell(2)
    model.encoder.layers = CellLayers(NewCell, 2, 2, 1, 0.0)
    accelerate(model)
    assert model.encoder.read is plain_read
    assert model.decoder.unroll is plain.unroll
    assert model.make_step(5) == plain.PlainStep(model.decoder)


# Search


@SAME
@every_cell
@pytest.mark.parametrize("output", [("maxout", "current"), ("tanh", "previous")], ids=str)
@pytest.mark.parametrize("beam_size", [1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fast_step_of_a_search_equals_plain_step(cell, output, beam_size, dtype):
    """Also where several hypotheses share a decoder state, and several states a sentence."""
    torch.manual_seed(1)
    activation, state = output
    config = ModelConfig(
        cell=cell,
        embedding_size=6,
        encoder_size=5,
        decoder_size=8,
        attention=AttentionConfig(size=7),
        output=OutputConfig(activation, 6, state),
    )
    model = accelerate(build_model(config, 13, 11)).to(dtype).eval()
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.7, 0.7)
    source, mask = torch.randint(4, 13, (3, 6)), mask_of([4, 1, 6])
    with torch.inference_mode():
        steps = model.make_step(beam_size), plain.PlainStep(model.decoder)
        assert isinstance(steps[0], FastStep)
        states = [step.start(*model.start(source, mask)) for step in steps]
        tokens = torch.tensor([2, 2, 2])
        for rows, new_tokens in (
            ([0, 0, 1, 2, 2, 2], [5, 6, 5, 4, 6, 7]),  # hypotheses share states
            ([1, 0, 0, 2, 4, 4], [3, 9, 9, 10, 3, 4]),
            ([5, 0, 3], [8, 8, 4]),  # none does
            ([1, 2], [3, 9]),
        ):
            results = [step(tokens, state) for step, state in zip(steps, states, strict=True)]
            (logits, _, weights), (expected_logits, _, expected_weights) = results
            assert_close(logits, expected_logits)
            assert_close(weights, expected_weights)
            states = [state.select(torch.tensor(rows)) for _, state, _ in results]
            tokens = torch.tensor(new_tokens)


def test_plain_step_is_used_in_training_and_when_gradients_are_needed():
    model = accelerate(build_model(ModelConfig(encoder_size=2, decoder_size=2), 5, 5))
    for training, gradients in ((True, False), (False, True)):
        with torch.set_grad_enabled(gradients):
            assert isinstance(model.train(training).make_step(5), plain.PlainStep)
