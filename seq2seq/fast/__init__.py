"""The recurrences of training with hand-written derivatives, and searches with packed weights.

``accelerate.accelerate`` puts them into a plain model wherever they support its parts:
``encoder.read`` for the layers of ``model.encoder``, ``decoder.unroll`` for the loop of
``model.decoder`` over the target positions, ``search.FastStep`` for the step of a search. They are
the same functions of the same parameters, with the same gradients. They take less time and memory:

- The gradient of a weight is one matrix product after the loop, not one per step.
- The attention's (B, S, A) tensor is recomputed in the backward pass, not kept for every step, and
  needs no tanh for every pair of positions (``decoder.AdditiveEnergies``).
- The encoder reads both directions with one product per step, and never computes padding.
- States are stored units first, (units, sentences): the product of a large weight and a few states
  is then about 1.5 times as fast on a CPU as with the sentences first.

Tensors of one step have the shape (D, units, n): D = 2 directions of an encoder or 1 decoder, n
sentences. Tensors of all steps have the shape (D, units, N): the sentences of the first step, then
those of the second, and so on. ``d_x`` is the gradient of the loss with respect to ``x``. There are
no second derivatives.

A search needs no gradients. It stores sentences first, because several hypotheses of a sentence are
rows that ``index_select`` copies.

Under ``torch.autocast`` the matrix products take its precision; states, gates, energies and sums
stay in float32.
"""
