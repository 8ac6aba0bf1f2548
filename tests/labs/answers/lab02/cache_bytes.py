# %% right: layer by layer
def cache_bytes(shape, tokens):
    windowed = shape.n_layers if shape.windowed_layers is None else shape.windowed_layers
    total = 0
    for layer in range(shape.n_layers):
        kept = min(tokens, shape.window) if shape.window and layer < windowed else tokens
        per_token = shape.latent + shape.rope_width if shape.latent else 2 * shape.n_kv_heads * shape.head_dim
        total += 2 * kept * per_token
    return total


# %% right: by the shape's own properties
def cache_bytes(shape, tokens):
    return 2 * shape.elements * sum(n * min(tokens, window or tokens) for n, window in shape.layer_groups())


# %% wrong: C038, no windows
# says: windows are forgotten
def cache_bytes(shape, tokens):
    per_token = shape.latent + shape.rope_width if shape.latent else 2 * shape.n_kv_heads * shape.head_dim
    return 2 * shape.n_layers * tokens * per_token


# %% wrong: all layers windowed
# says: windowed_layers says how many are
def cache_bytes(shape, tokens):
    per_token = shape.latent + shape.rope_width if shape.latent else 2 * shape.n_kv_heads * shape.head_dim
    return 2 * shape.n_layers * min(tokens, shape.window or tokens) * per_token


# %% wrong: no latents
# says: latents are forgotten
def cache_bytes(shape, tokens):
    kept = sum(n * min(tokens, window or tokens) for n, window in shape.layer_groups())
    return 4 * shape.n_kv_heads * shape.head_dim * kept


# %% wrong: latents as keys and values
# says: latents are counted twice
def cache_bytes(shape, tokens):
    kept = sum(n * min(tokens, window or tokens) for n, window in shape.layer_groups())
    return 4 * (shape.latent + shape.rope_width if shape.latent else shape.n_kv_heads * shape.head_dim) * kept


# %% wrong: latents without their RoPE part
# says: the latent's part for RoPE is forgotten
def cache_bytes(shape, tokens):
    kept = sum(n * min(tokens, window or tokens) for n, window in shape.layer_groups())
    return 2 * (shape.latent or 2 * shape.n_kv_heads * shape.head_dim) * kept


# %% wrong: query heads
# says: query heads are counted
def cache_bytes(shape, tokens):
    kept = sum(n * min(tokens, window or tokens) for n, window in shape.layer_groups())
    return 2 * (shape.latent + shape.rope_width if shape.latent else 2 * shape.n_heads * shape.head_dim) * kept


# %% wrong: plain attention alone
# says: right for plain attention alone
def cache_bytes(shape, tokens):
    return 4 * shape.n_layers * shape.n_kv_heads * shape.head_dim * tokens
