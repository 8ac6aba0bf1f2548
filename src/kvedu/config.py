"""What a model is, as numbers: a frozen, self-checking description that everything else is sized from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvedu.config_experts import ExpertsConfig
from kvedu.config_latent import LatentConfig
from kvedu.errors import ConfigError
from kvedu.rope_config import RopeConfig

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "deepseek_v2", "deepseek_v3")


@dataclass(frozen=True)
class ModelConfig:
    """One decoder-only transformer of the Llama family.

    MHA, MQA and GQA are one class: ``n_kv_heads`` equal to ``n_heads`` is MHA, 1 is
    MQA, anything between that divides ``n_heads`` is GQA. ``head_dim`` is given, never
    assumed to be ``width / n_heads`` (Qwen3-4B: width 2,560, 32 heads, head size 128).

    With latents (MLA) ``n_kv_heads`` and ``head_dim`` are what attention finds in a cache: one KV head of
    Z + R elements where it is absorbed, H of them where it is written out (``LatentConfig.cached``).

    Raises ``ConfigError`` when the numbers contradict each other.
    """

    n_layers: int
    width: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    mlp_width: int
    vocab_size: int
    max_positions: int
    rope: RopeConfig
    family: str = "llama"
    norm_eps: float = 1e-5
    tied: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None
    """Keys that a query sees, itself included; None or 0 means all of them."""
    windowed_layers: tuple[bool, ...] | None = None
    """Which layers use the window; None means every layer, if there is a window."""
    latent: LatentConfig | None = None
    """Multi-head latent attention; None for keys and values of their own."""
    experts: ExpertsConfig | None = None
    """Mixture of experts in place of the MLP, from ``experts.first`` on; None for one MLP in every layer."""
    kv_source: tuple[int, ...] | None = None
    """For each layer the layer whose keys and values it reads, itself or an earlier one; None: each its own."""
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    pad_id: int | None = None

    def __post_init__(self) -> None:
        for name in ("n_layers", "width", "n_heads", "n_kv_heads", "head_dim", "mlp_width", "vocab_size", "max_positions"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} must be a positive integer, not {value!r}")
        if self.family not in FAMILIES:
            raise ConfigError(f"family {self.family!r} is unknown; kvedu knows {', '.join(FAMILIES)}")
        if self.n_heads % self.n_kv_heads:
            raise ConfigError(
                f"{self.n_heads} query heads cannot share {self.n_kv_heads} KV heads evenly; "
                "n_kv_heads must divide n_heads (equal: MHA, 1: MQA)"
            )
        if self.rope.dim > self.head_dim:
            raise ConfigError(f"RoPE rotates {self.rope.dim} of only {self.head_dim} head dimensions")
        if self.sliding_window is not None and self.sliding_window < 0:
            raise ConfigError(f"sliding_window must be positive, or 0/None for none, not {self.sliding_window}")
        if self.windowed_layers is not None and len(self.windowed_layers) != self.n_layers:
            raise ConfigError(f"windowed_layers has {len(self.windowed_layers)} entries for {self.n_layers} layers")
        if self.latent is not None:
            self._check_latent(self.latent)
        if self.kv_source is not None:
            self._check_sources(self.kv_source)

    def _check_latent(self, latent: LatentConfig) -> None:
        heads, size, _ = latent.cached(self.n_heads)
        if (self.n_kv_heads, self.head_dim) != (heads, size):
            raise ConfigError(
                f"{'absorbed' if latent.absorbed else 'written-out'} latent attention finds {heads} KV heads of {size} elements "
                f"in a cache, but n_kv_heads is {self.n_kv_heads} and head_dim {self.head_dim}"
            )
        if self.rope.dim != latent.rope_width:
            raise ConfigError(f"RoPE rotates {self.rope.dim} elements, the latent's rope_width is {latent.rope_width}")
        if self.qk_norm:
            raise ConfigError("qk_norm belongs to heads that have keys of their own, not to latent attention")

    def _check_sources(self, sources: tuple[int, ...]) -> None:
        if self.latent is not None:
            raise ConfigError("kv_source shares keys between layers, which kvedu does not do with latents")
        if len(sources) != self.n_layers:
            raise ConfigError(f"kv_source has {len(sources)} entries for {self.n_layers} layers")
        for layer, source in enumerate(sources):
            if not 0 <= source <= layer or sources[source] != source:
                raise ConfigError(
                    f"layer {layer} would read the keys of layer {source}; it can read its own, or those of an earlier "
                    "layer that has its own"
                )
            if self.window(layer) != self.window(source):
                raise ConfigError(
                    f"layer {layer} reads the keys of layer {source} with a window of {self.window(layer)} over one of "
                    f"{self.window(source)}; layers that share keys see as far as each other"
                )

    # The dimension key of kvedu.dims.
    @property
    def L(self) -> int:
        """Layers."""
        return self.n_layers

    @property
    def M(self) -> int:
        """Model width."""
        return self.width

    @property
    def H(self) -> int:
        """Query heads."""
        return self.n_heads

    @property
    def K(self) -> int:
        """KV heads."""
        return self.n_kv_heads

    @property
    def G(self) -> int:
        """Queries per KV head, H / K."""
        return self.n_heads // self.n_kv_heads

    @property
    def D(self) -> int:
        """Head size: elements of a key."""
        return self.head_dim

    @property
    def Dv(self) -> int:
        """Elements of a value: D, but for latents."""
        return self.head_dim if self.latent is None else self.latent.cached(self.n_heads)[2]

    @property
    def F(self) -> int:
        """MLP width."""
        return self.mlp_width

    @property
    def V(self) -> int:
        """Vocabulary size."""
        return self.vocab_size

    @property
    def attention_kind(self) -> str:
        """``"MLA"`` for latents, else ``"MHA"``, ``"GQA"`` or ``"MQA"``, by the number of KV heads."""
        if self.latent is not None:
            return "MLA"
        if self.n_kv_heads == self.n_heads:
            return "MHA"
        return "MQA" if self.n_kv_heads == 1 else "GQA"

    def window(self, layer: int) -> int | None:
        """Keys that a query of this layer sees, or None for all earlier ones."""
        if not self.sliding_window or (self.windowed_layers is not None and not self.windowed_layers[layer]):
            return None
        return self.sliding_window

    @property
    def kv_layers(self) -> tuple[int, ...]:
        """Layers that have keys and values of their own: what a cache holds, in its order."""
        return tuple(layer for layer in range(self.n_layers) if self.reads_own(layer))

    def has_experts(self, layer: int) -> bool:
        """Whether a layer has experts in place of one MLP."""
        return self.experts is not None and layer >= self.experts.first

    def reads_own(self, layer: int) -> bool:
        """Whether a layer makes the keys and values that it reads."""
        return self.kv_source is None or self.kv_source[layer] == layer

    def kv_slot(self, layer: int) -> int:
        """Which of a cache's layers a layer reads."""
        return layer if self.kv_source is None else self.kv_layers.index(self.kv_source[layer])

    def with_absorbed(self, absorbed: bool) -> ModelConfig:
        """The same model with its latent attention absorbed, or written out. Raises ``ConfigError`` without latents."""
        if self.latent is None:
            raise ConfigError(f"a {self.attention_kind} model has no latents to absorb")
        latent = replace(self.latent, absorbed=absorbed)
        heads, size, _ = latent.cached(self.n_heads)
        return replace(self, latent=latent, n_kv_heads=heads, head_dim=size)

    def with_kv_heads(self, n_kv_heads: int) -> ModelConfig:
        """The same model with another number of KV heads."""
        return replace(self, n_kv_heads=n_kv_heads)
