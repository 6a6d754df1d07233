# ruff: noqa
# fmt: off
"""Small numpy reimplementations of the peers' quantisers (own code), used to check the peers' behaviour.

Every function takes/returns float32 numpy arrays unless noted. 'bug-compatible' means: reproduces what the
peer does on CPU bit for bit, including places where the peer departs from the mathematical definition.
"""
import numpy as np

F32, U32, I32 = np.float32, np.uint32, np.int32


def bits(x):
    return np.ascontiguousarray(x, F32).view(U32)


def unbits(u):
    return np.ascontiguousarray(u, U32).view(F32)


def _round_bits(u, man, mode):
    """Keep `man` fraction bits of float32 patterns. mode: even | away | down | up (truncate / +1ulp then truncate)."""
    u = u.astype(np.uint64)
    drop = 23 - man
    mask = np.uint64((1 << drop) - 1)
    half = np.uint64(1 << (drop - 1))
    add = np.full(u.shape, {"even": half, "away": half, "down": np.uint64(0), "up": np.uint64(1 << drop)}[mode])
    if mode == "even":
        tie = (u & mask) == half
        lsb0 = ((u >> np.uint64(drop)) & np.uint64(1)) == 0
        add = np.where(tie & lsb0, np.uint64(0), add)
    return (((u + add) & ~mask) & np.uint64(0xFFFFFFFF)).astype(U32)


def float_quantize(x, man, exp, bias=None, flush=False, mode="even"):
    """dmx (mode='even') and QPyTorch (mode='away', bias None, flush False). man <= 22."""
    x = np.ascontiguousarray(x, F32)
    bias = 2 ** (exp - 1) - 1 if bias is None else bias
    u = bits(x)
    sign = u & U32(0x80000000)
    e = ((u >> 23) & 0xFF).astype(I32) - 127
    min_exp = 1 - bias
    sub = e < min_exp
    # normal
    q = _round_bits(u, man, mode)
    field = ((q >> 23) & 0xFF).astype(I32)
    max_field = (1 << (exp - 1)) + 127          # the peer ignores `bias` here
    max_bits = U32((max_field << 23) | ((0x7FFFFF >> (23 - man)) << (23 - man)))
    q = np.where((field > max_field) & (q != 0), sign | max_bits, q)
    y = unbits(q).copy()
    # subnormal: add and subtract +-2^min_exp in float32
    if flush:
        y[sub] = 0.0
    else:
        shift = unbits(U32((127 + min_exp) << 23) | sign)
        with np.errstate(all="ignore"):
            v = (x + shift).astype(F32)
            ys = (unbits(_round_bits(bits(v), man, mode)) - shift).astype(F32)
        y[sub] = ys[sub]
    return y


def fixed_quantize(x, wl, fl, clamp=True, symmetric=True, mode="nearest"):
    x = np.ascontiguousarray(x, F32)
    with np.errstate(all="ignore"):
        t = np.ldexp(x, I32(fl)).astype(F32)
        if mode == "nearest":
            r = np.rint((t + F32(0.5)).astype(F32).astype(np.float64) - 0.5)
        else:
            r = (np.ceil if mode == "up" else np.floor)(t).astype(np.float64)
        y = np.ldexp(r.astype(F32), I32(-fl)).astype(F32)
    if clamp:
        lo = F32(-np.ldexp(1.0, wl - fl - 1))
        hi = F32(np.ldexp(1.0, wl - fl - 1) - np.ldexp(1.0, -fl))
        if symmetric:
            lo = F32(lo + np.ldexp(1.0, -fl))
        y = np.where(y > hi, hi, np.where(y < lo, lo, y)).astype(F32)
    return y


def block_quantize_rows(x, wl, mode="even"):
    """x (rows, block): one shared exponent per row. Quantum 2^(E+2-wl), |n| <= 2^(wl-1)-1, E = exponent of row max."""
    x = np.ascontiguousarray(x, F32)
    with np.errstate(all="ignore"):
        m = np.max(np.abs(x), axis=1, keepdims=True)
        me = bits(m) & U32(0x7F800000)
        base = (unbits(me).reshape(m.shape) * F32(6)).astype(F32)
        q = unbits(_round_bits(bits((x + base).astype(F32)), wl, mode))
        y = (q - base).astype(F32)
    uy = bits(y)
    over = (uy & U32(0x7F800000)) > me
    mx = me | U32((0x7FFFFF >> (23 - (wl - 2))) << (23 - (wl - 2)))
    return unbits(np.where(over, (uy & U32(0x80000000)) | mx, uy))


def _blocks(x, bs, dim):
    xt = np.swapaxes(np.asarray(x, F32), dim, -1)
    sh = xt.shape
    f = xt.reshape(-1, sh[-1])
    return [np.ascontiguousarray(f[:, i:i + bs]) for i in range(0, sh[-1], bs)], sh


def _join(parts, sh, dim):
    return np.ascontiguousarray(np.swapaxes(np.concatenate(parts, 1).reshape(sh), dim, -1))


def bfp(x, wl, bs, dim=-1, symmetric=True, mode="even"):
    if bs == 1:
        return float_quantize(x, wl - 2, 8, 127, False, mode)
    parts, sh = _blocks(x, bs, dim)
    out = []
    for p in parts:
        y = block_quantize_rows(p, wl, mode)
        if not symmetric:
            m = np.max(np.abs(y), axis=1, keepdims=True)
            _, e = np.frexp(m)
            quantum = np.ldexp(F32(1), e + 1 - wl).astype(F32)
            n = np.where(m > 0, y / np.where(quantum == 0, 1, quantum), 0)
            edge = n == -(2 ** (wl - 1) - 1)
            old = (y - p).astype(F32)
            cand = (old - quantum).astype(F32)
            y = np.where(edge & (np.abs(cand) <= np.abs(old)), -(2.0 ** (wl - 1)) * quantum, y).astype(F32)
        out.append(y)
    return _join(out, sh, dim)


def sbfp(x, p, sc_man, sc_exp, sc_bias, bs, dim=-1, flush=True):
    parts, sh = _blocks(x, bs, dim)
    out = []
    for b in parts:
        with np.errstate(all="ignore"):
            cm = (np.max(np.abs(b), axis=1, keepdims=True) / F32(2 ** (p - 1) - 1)).astype(F32)
            q = fixed_quantize((b / cm).astype(F32), p, 0) * np.abs(float_quantize(cm, sc_man, sc_exp, sc_bias, flush))
        out.append(np.where(cm > 0, q, b).astype(F32))
    return _join(out, sh, dim)


def mxfp(x, man, exp, bs, dim=-1):
    parts, sh = _blocks(x, bs, dim)
    out = []
    for b in parts:
        m = np.max(np.abs(b), axis=1, keepdims=True)
        with np.errstate(all="ignore"):
            s = (np.exp2(np.floor(np.log2(m.astype(np.float64)))) / 2.0 ** (2 ** (exp - 1))).astype(F32)
            y = (float_quantize((b / s).astype(F32), man, exp) * s).astype(F32)
        out.append(np.where(m == 0, F32(0), y))
    return _join(out, sh, dim)


# ---------------------------------------------------------------- ModelOpt
def int_fake_quant(x, amax, num_bits=8, unsigned=False, narrow_range=True):
    """-> (fake-quantised, integer values, scale) in float32."""
    x, amax = np.asarray(x, F32), np.asarray(amax, F32)
    hi = F32(2.0 ** (num_bits - 1 + int(unsigned)) - 1)
    lo = F32(0) if unsigned else (-hi if narrow_range else -hi - F32(1))
    with np.errstate(all="ignore"):
        scale = (hi / amax).astype(F32)
        zero = amax <= F32(2.0 ** -24)
        s = np.where(zero, F32(0), scale)
        q = np.rint((x * s).astype(F32))
        q = np.where(np.isnan(q), q, np.clip(q, lo, hi)).astype(F32)
        s1 = np.where(zero, F32(1), scale)
        return (q / s1).astype(F32), q, s1


def affine_fake_quant(x, lo, hi, num_bits=8):
    x, lo, hi = np.asarray(x, F32), F32(lo), F32(hi)
    step = F32((hi - lo) / F32(2.0 ** num_bits - 1))
    mn, mx = F32(-(2.0 ** (num_bits - 1))), F32(2.0 ** (num_bits - 1) - 1)
    qz = np.rint(F32(lo / step)) - mn
    with np.errstate(all="ignore"):
        q = (np.rint((x / step).astype(F32)) - qz).astype(F32)
        q = np.where(np.isnan(q), q, np.clip(q, mn, mx))
        return ((q + qz) * step).astype(F32)


def e4m3(x, saturate=True):
    """OCP E4M3 (max 448, NaN 0x7f), RNE with subnormals; |x| rounding above 448 -> 448 (saturate) or NaN."""
    x = np.asarray(x, F32)
    a = np.abs(x.astype(np.float64))
    with np.errstate(all="ignore"):
        e = np.clip(np.frexp(a)[1] - 1, -6, None)
        q = np.ldexp(np.rint(np.ldexp(a, 3 - e)), e - 3)
    q = np.where(q > 448, 448.0 if saturate else np.nan, q)
    q = np.where(np.isnan(x), np.nan, q)
    return np.copysign(q, x).astype(F32)


def e4m3_fake_quant(x, amax=None, saturate=True, guard=True):
    x = np.asarray(x, F32)
    if amax is None:
        return e4m3(x, saturate)
    amax = np.asarray(amax, F32)
    if guard:
        amax = np.where(amax <= F32(2.0 ** -24), F32(1), amax)
    with np.errstate(all="ignore"):
        scale = ((F32(1) / amax).astype(F32) * F32(448)).astype(F32)   # torch turns number / tensor into reciprocal * number
        inv = (F32(1) / scale).astype(F32)
        return (e4m3((x * scale).astype(F32), saturate) * inv).astype(F32)


E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], F32)
E2M1_MID = np.array([.25, .75, 1.25, 1.75, 2.5, 3.5, 5.0], F32)


def e2m1(x, ties="even"):
    a = np.abs(np.asarray(x, F32))
    i = np.searchsorted(E2M1_MID, a, side="left")          # a == mid -> lower
    if ties == "even":
        i = i + np.isin(a, E2M1_MID[1::2]).astype(int)
    return np.copysign(E2M1[np.clip(i, 0, 7)], x).astype(F32)


def nvfp4(x, bs=16, global_amax=None, ties="even"):
    x = np.asarray(x, F32)
    g = F32(np.max(np.abs(x)) if global_amax is None else global_amax)
    s2 = (g / F32(6.0 * 448.0)).astype(F32)
    b = x.reshape(-1, bs)
    with np.errstate(all="ignore"):
        s = (np.max(np.abs(b), 1, keepdims=True) / (F32(6) * s2).astype(F32)).astype(F32)
        s = np.where(s == 0, F32(1), s)
        s8 = e4m3(s, saturate=False)
        eff = (s8 * s2).astype(F32)
        return (e2m1((b / eff).astype(F32), ties) * eff).astype(F32).reshape(x.shape)


def mxfp4_modelopt(x, bs=32):
    """unscale = 2^ceil(log2(amax/6)) (round the scale UP), midpoints go towards zero."""
    b = np.asarray(x, F32).reshape(-1, bs)
    with np.errstate(all="ignore"):
        d = (np.max(np.abs(b), 1, keepdims=True) / F32(6)).astype(F32)
        k = np.ceil(np.maximum(np.log2(d.astype(np.float64)), -127))
    s = np.exp2(k)
    return (e2m1((b / s).astype(F32), "down") * s).astype(F32).reshape(np.shape(x))


# ---------------------------------------------------------------- inputs
def wide_inputs(rng, n, kind="mixed"):
    """float32: normal, log-uniform over every exponent, ties, zeros, inf/nan, boundaries."""
    k = n // 4
    normal = rng.standard_normal(k).astype(F32) * F32(3)
    logu = unbits((rng.integers(0, 2, k).astype(U32) << 31) | (rng.integers(0, 255, k).astype(U32) << 23)
                  | rng.integers(0, 1 << 23, k).astype(U32))
    man = rng.integers(0, 9, k)
    ties = np.ldexp((rng.integers(1 << 9, 1 << 10, k) * 2 + 1).astype(np.float64), rng.integers(-24, 8, k) - 10)
    ties = (np.round(ties * 2.0 ** 8) / 2.0 ** 8 + 0.0).astype(F32) * np.where(rng.random(k) < .5, -1, 1).astype(F32)
    fine = np.ldexp(rng.integers(-4096, 4096, k).astype(np.float64), -rng.integers(2, 14, k)).astype(F32)
    bound = []
    for e in list(range(-149, 128, 3)) + [-10, -9, -7, -6, -1, 0, 1, 7, 8, 9, 15, 16, 17, 127]:
        v = F32(np.ldexp(1.0, e))
        for w in (v, np.nextafter(v, F32(0)), np.nextafter(v, F32(np.inf)), v * F32(1.5), v * F32(1.9375)):
            bound += [w, -w]
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 448, 464, 480, 57344, 61440, 65504, 65520, 240, 6, 7, 7.5, 28], F32)
    out = np.concatenate([normal, logu, ties, fine, np.array(bound, F32), special])
    return out.astype(F32)


def same(a, b):
    """Equal as numbers, NaN = NaN, signed zeros told apart? -> (#value mismatches, #only-zero-sign mismatches)."""
    a, b = np.asarray(a, F32), np.asarray(b, F32)
    bad = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    zs = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    return int(bad.sum()), int(zs.sum())


# ---------------------------------------------------------------- exact definitions (float64), to mark where a peer departs
def ideal_float(x, man, exp, bias=None, flush=False, ties="even"):
    bias = 2 ** (exp - 1) - 1 if bias is None else bias
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        a = np.abs(x)
        e = np.clip(np.frexp(a)[1] - 1, 1 - bias, None)
        t = np.ldexp(a, man - e)
        q = np.ldexp(np.rint(t) if ties == "even" else np.floor(t + 0.5), e - man)
        if exp < 8:
            q = np.minimum(q, 2.0 ** (2 ** exp - 1 - bias) * (2 - 2.0 ** -man))
        if flush:
            q = np.where(a < 2.0 ** (1 - bias), 0, q)
        q = np.copysign(q, x)
        return np.where(np.isnan(x), np.nan, q).astype(F32)


def ideal_fixed(x, wl, fl, clamp=True, symmetric=True, mode="nearest"):
    with np.errstate(all="ignore"):
        q = {"nearest": np.rint, "up": np.ceil, "down": np.floor}[mode](np.ldexp(np.asarray(x, np.float64), fl))
        if clamp:
            hi = 2.0 ** (wl - 1) - 1
            q = np.where(np.isnan(q), q, np.clip(q, -hi if symmetric else -hi - 1, hi))
        return np.ldexp(q, -fl).astype(F32)


def ideal_rows(b, wl, mode="even"):
    b = np.asarray(b, np.float64)
    m = np.max(np.abs(b), 1, keepdims=True)
    quantum = np.ldexp(1.0, np.frexp(m)[1] + 1 - wl)
    t = b / quantum
    n = {"even": np.rint, "up": np.ceil, "down": np.floor, "away": lambda v: np.floor(v + 0.5)}[mode](t)   # 'away': ties to +inf
    hi = 2.0 ** (wl - 1) - 1
    return np.where(m == 0, 0, np.clip(n, -hi, hi) * quantum).astype(F32)


def ideal_bfp(x, wl, bs, dim=-1, mode="even"):
    if bs == 1:
        return ideal_float(x, wl - 2, 8, 127)
    p, sh = _blocks(x, bs, dim)
    return _join([ideal_rows(b, wl, mode) for b in p], sh, dim)


def ideal_mxfp(x, man, exp, bs, dim=-1):
    p, sh = _blocks(x, bs, dim)
    out = []
    for b in p:
        b = b.astype(np.float64)
        m = np.max(np.abs(b), 1, keepdims=True)
        s = np.ldexp(1.0, np.frexp(m)[1] - 1 - 2 ** (exp - 1))
        out.append(np.where(m == 0, 0, ideal_float(b / s, man, exp).astype(np.float64) * s).astype(F32))
    return _join(out, sh, dim)
