"""The recurrences of training, with their derivatives written by hand.

``decoder.attend_and_advance`` computes what the loop of ``model.decoder`` over the target positions
computes, and ``encoder.read`` what the layers of ``model.encoder`` do: the same functions of the
same parameters, and the same gradients. They take less time and memory because

- the gradient of a weight is one matrix product after the loop, not one a step;
- the attention's (B, S, A) tensor is made anew in the backward pass, not kept at every step, and
  takes no tanh for every pair of positions (``decoder.AdditiveSteps``);
- an encoder reads in both directions by one product a step, and never computes padding;
- states lie with their units first, (units, sentences): a product of a large weight and a few
  states is then about 1.5 times as fast on a CPU as with the sentences first.

What one step of a recurrence has lies in tensors (D, units, n): D = 2 directions of an encoder or
1 decoder, n sentences. What all steps have together, (D, units, N), counts the sentences at the
first step, those at the second, and so on. ``d_x`` is the gradient of the loss by ``x``. There are
no second derivatives.

``search.FastSteps`` computes the steps of a search, without gradients and with the sentences first:
several states of a sentence are rows that ``index_select`` copies.

Under ``torch.autocast`` the matrix products take its precision; states, gates, energies and sums
stay in float32.
"""
