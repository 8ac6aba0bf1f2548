# %% right: a loop
def to_codes(x_n, bits):
    low, high = float(x_n.min()), float(x_n.max())
    steps = 2**bits - 1
    scale = (high - low) / steps
    codes = torch.zeros(len(x_n), dtype=torch.uint8)
    for i, x in enumerate(x_n.tolist()):
        if scale > 0:
            codes[i] = min(steps, round((x - low) / scale))
    return codes, scale, low


# %% right: tensors for scale and zero, a tiny step instead of none
def to_codes(x_n, bits):
    zero = x_n.min()
    scale = (x_n.max() - zero) / (2**bits - 1)
    codes = torch.round((x_n - zero) / torch.clamp(scale, min=1e-12))
    return codes.clamp(0, 2**bits - 1).to(torch.uint8), scale, zero


# %% wrong: as many steps as codes
# says: 2**bits codes make 2**bits - 1 steps
def to_codes(x_n, bits):
    zero = x_n.min().item()
    scale = (x_n.max().item() - zero) / 2**bits
    codes = ((x_n - zero) / scale).round() if scale else torch.zeros_like(x_n)
    return codes.clamp(0, 2**bits - 1).to(torch.uint8), scale, zero


# %% wrong: cuts
# says: cut down to a step instead of rounded
def to_codes(x_n, bits):
    zero = x_n.min().item()
    scale = (x_n.max().item() - zero) / (2**bits - 1)
    codes = ((x_n - zero) / scale + 1e-4).floor() if scale else torch.zeros_like(x_n)
    return codes.clamp(0, 2**bits - 1).to(torch.uint8), scale, zero


# %% wrong: counts from 0.0
# says: count from 0.0 instead of from the lowest number
def to_codes(x_n, bits):
    zero = min(x_n.min().item(), 0.0)
    scale = (max(x_n.max().item(), 0.0) - zero) / (2**bits - 1)
    codes = ((x_n - zero) / scale).round() if scale else torch.zeros_like(x_n)
    return codes.to(torch.uint8), scale, zero


# %% wrong: codes that are no bytes
# says: codes are bytes
def to_codes(x_n, bits):
    zero = x_n.min().item()
    scale = (x_n.max().item() - zero) / (2**bits - 1) or 1.0
    return ((x_n - zero) / scale).round(), scale, zero


# %% wrong: scale and zero change places
# says: the result is not the right one
def to_codes(x_n, bits):
    zero = x_n.min().item()
    scale = (x_n.max().item() - zero) / (2**bits - 1)
    codes = ((x_n - zero) / scale).round() if scale else torch.zeros_like(x_n)
    return codes.to(torch.uint8), zero, scale
