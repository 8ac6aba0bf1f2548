"""Parameters, their bytes, and the activations of one step: what a GPU holds besides the cache."""

from __future__ import annotations

from kvedu.config import ModelConfig
from kvedu.errors import KveduError


def matrix_parameters(config: ModelConfig) -> dict[str, int]:
    """Parameters of the matrices that every step multiplies by: q k v o, the MLP and the head.

    Attention: q M x HD, k and v M x KD, o HD x M. HD need not equal M (Qwen3-4B: 4,096 and 2,560).
    A layer that reads another's keys has no k and v. Latent attention: see ``latent_parameters``.
    MLP: gate, up and down, 3 M F. A tied head is the embedding, used again. Biases and norms, below
    0.1 % of a model, are not matrices. Raises ``KveduError`` for a mixture of experts.
    """
    if config.experts is not None:
        raise KveduError(
            "how many experts a step reads and runs depends on its tokens: count a mixture's weights with parameters(), and "
            "its cache with kv_cache_bytes"
        )
    return _matrices(config)


def _matrices(config: ModelConfig) -> dict[str, int]:
    L, M, H, K, D = config.L, config.M, config.H, config.K, config.D
    projections = L * 2 * M * H * D + len(config.kv_layers) * 2 * M * K * D
    if config.latent is not None:
        projections = L * latent_parameters(config)
    return {"projections": projections, "mlp": L * 3 * M * config.F, "head": M * config.V}


def latent_parameters(config: ModelConfig) -> int:
    """Matrix elements of one layer's latent attention: queries (through their own latent, if any), down, up, output.

    q M x H (nope + R), or M x C and C x H (nope + R); down M x (Z + R); up Z x H nope and Z x H Dv; o H Dv x M.
    """
    latent, M, H = config.latent, config.M, config.H
    q_rows, C = H * latent.query_key_width, latent.query_width
    queries = M * q_rows if C is None else C * (M + q_rows)
    up = latent.width * H * (latent.nope_width + latent.value_width)
    return queries + M * (latent.width + latent.rope_width) + up + H * latent.value_width * M


def weights_read(config: ModelConfig, bytes_per_element: int = 2) -> int:
    """Bytes of weights that every step reads, whatever its batch: an untied embedding is not among them."""
    return bytes_per_element * sum(matrix_parameters(config).values())


def parameters(config: ModelConfig) -> dict[str, int]:
    """Exact parameter count by part; ``head`` is 0 when it is tied to the embedding.

    The matrices, and beside them biases (where the config has them), norms and the embedding.

    >>> from kvedu.rope_config import RopeConfig
    >>> config = ModelConfig(n_layers=30, width=576, n_heads=9, n_kv_heads=3, head_dim=64, mlp_width=1536,
    ...                      vocab_size=49152, max_positions=8192, rope=RopeConfig(64), tied=True)
    >>> parameters(config)
    {'embedding': 28311552, 'attention': 26542080, 'mlp': 79626240, 'norms': 35136, 'head': 0}
    """
    L, M, H, K, D, F, V = config.L, config.M, config.H, config.K, config.D, config.F, config.V
    matrices, latent, own = _matrices(config), config.latent, len(config.kv_layers)
    if latent is None:
        biased, normed = L * H * D + own * 2 * K * D, (L + own) * D if config.qk_norm else 0
    else:
        C = latent.query_width or 0
        biased, normed = L * (C + latent.width + latent.rope_width), L * (C + latent.width)
    attention_bias = (biased if config.qkv_bias else 0) + (L * M if config.out_bias else 0)
    mixed = sum(config.has_experts(layer) for layer in range(L))
    mlp = (L - mixed) * (3 * M * F + (2 * F + M if config.mlp_bias else 0))
    mlp += mixed * config.experts.parameters(M, config.mlp_bias) if mixed else 0
    return {
        "embedding": V * M,
        "attention": matrices["projections"] + attention_bias,
        "mlp": mlp,
        "norms": L * 2 * M + normed + M,
        "head": 0 if config.tied else matrices["head"],
    }


def parameter_count(config: ModelConfig) -> int:
    """All parameters, a tied embedding counted once."""
    return sum(parameters(config).values())


def weight_bytes(config: ModelConfig, bytes_per_element: int = 2) -> int:
    """Bytes of the weights in memory, a tied embedding held once."""
    if bytes_per_element < 1:
        raise KveduError(f"an element takes at least 1 byte, not {bytes_per_element}")
    return parameter_count(config) * bytes_per_element


def activation_bytes(
    config: ModelConfig,
    new_tokens: int = 1,
    batch: int = 1,
    context: int = 0,
    bytes_per_element: int = 2,
    *,
    scores_stored: bool = False,
    all_logits: bool = False,
) -> int:
    """Estimate of the most activation memory alive at once in one inference step, in bytes.

    N = batch x new_tokens. Assumed: nothing is kept for a backward pass, so one layer's worth is
    alive; the residual stream (N M) is alive throughout; and beside it the largest of
    attention (normed input N M, q k v N (H + K) D + N K Dv, output N H Dv; with ``scores_stored`` also two
    copies of the scores, B H T (context + T), before and after softmax: the plain path, where a
    FlashAttention-like kernel keeps none),
    MLP (normed input, silu(gate), up and their product, N M + 3 N F) and
    head (normed input and logits, (M + V) each, for the last token of each sequence, or for all).
    An allocator's rounding and a kernel's workspace come on top.

    >>> from kvedu.rope_config import RopeConfig
    >>> config = ModelConfig(n_layers=30, width=576, n_heads=9, n_kv_heads=3, head_dim=64, mlp_width=1536,
    ...                      vocab_size=49152, max_positions=8192, rope=RopeConfig(64), tied=True)
    >>> activation_bytes(config, new_tokens=1024), activation_bytes(config, new_tokens=1024, scores_stored=True)
    (11796480, 43253760)
    """
    if new_tokens < 1 or batch < 1 or context < 0 or bytes_per_element < 1:
        raise KveduError(
            "a step has at least 1 new token, 1 sequence and 1 byte per element, and no negative context; "
            f"got new_tokens={new_tokens}, batch={batch}, context={context}, bytes_per_element={bytes_per_element}"
        )
    M, H, K, D, F, V = config.M, config.H, config.K, config.D, config.F, config.V
    N = batch * new_tokens
    scores = 2 * batch * H * new_tokens * (context + new_tokens) if scores_stored else 0
    attention = N * (M + (H + K) * (D + config.Dv)) + scores
    mlp = N * (M + 3 * F)
    head = (N if all_logits else batch) * (M + V)
    return bytes_per_element * (N * M + max(attention, mlp, head))
