"""A model's weights as a state of its own: plain copies, whatever form the model keeps them in."""

from __future__ import annotations

from torch import Tensor

from kvedu.model.layers import Linear
from kvedu.model.transformer import Transformer


def plain_state(model: Transformer) -> dict[str, Tensor]:
    """Copies of all weights by name, a tied matrix once; a packed weight comes back as ``[out, in]``.

    Cost: one copy of the weights. The model is not changed, and nothing in the result shares its memory.
    """
    state = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for name, module in model.named_modules():
        if isinstance(module, Linear) and module.weight is None:
            state[f"{name}.weight"] = module.plain_weight()
    return state
