# %% right: complex numbers
def moved(k_SKD, old_S, new_S, inv_freq_J):
    J = len(inv_freq_J)
    pairs = torch.complex(k_SKD[..., :J], k_SKD[..., J:])
    angle = (new_S - old_S).float()[:, None, None] * inv_freq_J
    turned = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), dim=-1)


# %% right: back to 0, then to where it goes
def moved(k_SKD, old_S, new_S, inv_freq_J):
    def turn(x, by_S):
        angle = by_S.float()[:, None, None] * inv_freq_J
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1)

    return turn(turn(k_SKD, -old_S), new_S)


# %% right: key by key
def moved(k_SKD, old_S, new_S, inv_freq_J):
    out, J = k_SKD.clone(), len(inv_freq_J)
    for s in range(len(k_SKD)):
        angle = float(new_S[s] - old_S[s]) * inv_freq_J
        out[s, :, :J] = k_SKD[s, :, :J] * angle.cos() - k_SKD[s, :, J:] * angle.sin()
        out[s, :, J:] = k_SKD[s, :, J:] * angle.cos() + k_SKD[s, :, :J] * angle.sin()
    return out


# %% wrong: as if they were plain
# says: the keys are turned by the new position
def moved(k_SKD, old_S, new_S, inv_freq_J):
    angle = new_S.float()[:, None, None] * inv_freq_J
    a, b = k_SKD.chunk(2, dim=-1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1)


# %% wrong: the other way round
# says: the wrong way round
def moved(k_SKD, old_S, new_S, inv_freq_J):
    angle = (old_S - new_S).float()[:, None, None] * inv_freq_J
    a, b = k_SKD.chunk(2, dim=-1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1)


# %% wrong: the sign of the sine
# says: the wrong way round: by old - new
def moved(k_SKD, old_S, new_S, inv_freq_J):
    angle = (new_S - old_S).float()[:, None, None] * inv_freq_J
    a, b = k_SKD.chunk(2, dim=-1)
    return torch.cat((a * angle.cos() + b * angle.sin(), b * angle.cos() - a * angle.sin()), dim=-1)


# %% wrong: neighbors
# says: neighboring dimensions (2j, 2j + 1)
def moved(k_SKD, old_S, new_S, inv_freq_J):
    pairs = torch.view_as_complex(k_SKD.unflatten(-1, (-1, 2)).contiguous())
    angle = (new_S - old_S).float()[:, None, None] * inv_freq_J
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


# %% wrong: as they were
# says: the keys come back as they were
def moved(k_SKD, old_S, new_S, inv_freq_J):
    return k_SKD


# %% wrong: all by the same
# says: all keys are turned by what the first one moves
def moved(k_SKD, old_S, new_S, inv_freq_J):
    angle = float(new_S[0] - old_S[0]) * inv_freq_J
    a, b = k_SKD.chunk(2, dim=-1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1)


# %% wrong: angles of whole degrees
# says: the result is not the right one
def moved(k_SKD, old_S, new_S, inv_freq_J):
    angle = torch.deg2rad((new_S - old_S).float()[:, None, None] * inv_freq_J)
    a, b = k_SKD.chunk(2, dim=-1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1)
