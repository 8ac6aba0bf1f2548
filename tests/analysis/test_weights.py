"""Parameter counts against published ones and against transformers' own modules."""

import weakref

import pytest
import torch
from hypothesis import given, strategies as st

from kvedu.analysis.known_models import known_model
from kvedu.analysis.weights import activation_bytes, parameter_count, parameters, weight_bytes
from kvedu.config_hf import config_from_hf
from kvedu.errors import KveduError

PUBLISHED = {
    "SmolLM2-135M": 134_515_008,
    "SmolLM2-360M": 361_821_120,
    "SmolLM2-1.7B": 1_711_376_384,
    "Llama-2-7B": 6_738_415_616,
    "Llama-2-70B": 68_976_648_192,
    "Llama-3-8B": 8_030_261_248,
    "Llama-3-70B": 70_553_706_496,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Mistral-Nemo-12B": 12_247_782_400,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-72B": 72_706_203_648,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-4B": 4_022_468_096,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameter_counts(name):
    config = known_model(name).config
    assert parameter_count(config) == PUBLISHED[name]
    assert weight_bytes(config) == 2 * PUBLISHED[name]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family, extra", [
    ("llama", {}), ("llama", {"attention_bias": True, "mlp_bias": True}), ("mistral", {"head_dim": 24}),
    ("qwen2", {}), ("qwen3", {"head_dim": 32}), ("qwen3", {"head_dim": 32, "attention_bias": True}),
])  # fmt: skip
def test_equals_the_modules_of_transformers(family, extra, tied):
    transformers = pytest.importorskip("transformers")
    raw = dict(
        model_type=family, hidden_size=48, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
        intermediate_size=80, vocab_size=99, max_position_embeddings=64, tie_word_embeddings=tied, **extra,
    )  # fmt: skip
    settings = {key: value for key, value in raw.items() if key != "model_type"}
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(family, **settings))
    assert parameter_count(config_from_hf(raw)) == sum(p.numel() for p in model.parameters())


def test_tied_embedding_counts_once():
    config = known_model("SmolLM2-135M").config
    assert parameters(config)["head"] == 0
    assert parameters(config)["embedding"] == 49_152 * 576


class _Peak(torch.utils._python_dispatch.TorchDispatchMode):
    """Sums the storages alive at once: weak references tell when one is gone."""

    def __init__(self):
        super().__init__()
        self.alive, self.now, self.peak = {}, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            storage = out.untyped_storage()
            if storage.data_ptr() not in self.alive:
                key, size = storage.data_ptr(), storage.nbytes()
                self.alive[key] = size
                self.now += size
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._gone, key, size)
        return out

    def _gone(self, key, size):
        if self.alive.pop(key, None) is not None:
            self.now -= size


def test_mlp_peak_is_what_a_plain_mlp_holds():
    """The MLP term, measured: residual + normed input + silu(gate), up and their product."""
    config = known_model("SmolLM2-135M").config
    gate_MF, up_MF = torch.randn(config.M, config.F), torch.randn(config.M, config.F)
    down_FM = torch.randn(config.F, config.M)
    with _Peak() as seen, torch.no_grad():
        x_NM = torch.randn(64, config.M)
        normed_NM = x_NM * 1.0
        hidden_NF = torch.nn.functional.silu(normed_NM @ gate_MF) * (normed_NM @ up_MF)
        x_NM = x_NM + hidden_NF @ down_FM
    estimate = activation_bytes(config, new_tokens=64, bytes_per_element=4)
    assert 0.95 < seen.peak / estimate < 1.05


def test_activation_terms():
    config = known_model("SmolLM2-135M").config
    M, H, V = config.M, config.H, config.V
    assert activation_bytes(config) == 2 * (M + M + V)  # one token: the logits are the largest
    stored = activation_bytes(config, new_tokens=512, context=1024, scores_stored=True)
    assert stored > 2 * 2 * H * 512 * 1536
    assert activation_bytes(config, 512, all_logits=True) == 2 * 512 * (M + M + V)
    for wrong in ({"new_tokens": 0}, {"batch": 0}, {"context": -1}, {"bytes_per_element": 0}):
        with pytest.raises(KveduError, match="at least 1 new token"):
            activation_bytes(config, **wrong)
    with pytest.raises(KveduError, match="at least 1 byte"):
        weight_bytes(config, 0)


@given(st.integers(1, 300), st.integers(1, 8), st.integers(0, 500), st.booleans(), st.booleans())
def test_activations_never_shrink(new_tokens, batch, context, scores_stored, all_logits):
    config = known_model("Qwen3-0.6B").config
    flags = dict(scores_stored=scores_stored, all_logits=all_logits)
    here = activation_bytes(config, new_tokens, batch, context, **flags)
    assert activation_bytes(config, new_tokens + 1, batch, context, **flags) >= here
    assert activation_bytes(config, new_tokens, batch + 1, context, **flags) >= here
    assert activation_bytes(config, new_tokens, batch, context + 1, **flags) >= here
