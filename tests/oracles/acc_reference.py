# ruff: noqa
# fmt: off
"""Independent numpy reference for the accumulator design space (own code; MIT-style reuse inside the project is fine).

Part A  generic accumulators on float64 carriers (vectorised over outputs, loop over K)
Part B  "fused block accumulate" hardware template (exact int64 arithmetic on raw bit patterns)
Part C  slow exact oracle with fractions.Fraction, used only by acc_self_check.py
"""
from __future__ import annotations
from dataclasses import dataclass
from fractions import Fraction
import numpy as np

# ----------------------------------------------------------------- formats --
@dataclass(frozen=True)
class Fmt:
    """p = significand bits incl. hidden bit; emin = exponent of the smallest normal; maxval = largest finite."""
    p: int
    emin: int
    maxval: float
    subnormals: bool = True
    saturate: bool = False          # overflow: saturate (True) or +-inf (False)

def eXmY(e, m, subnormals=True, saturate=False, bias=None):
    b = 2 ** (e - 1) - 1 if bias is None else bias
    emax = 2 ** e - 2 - b
    return Fmt(m + 1, 1 - b, (2 - 2.0 ** -m) * 2.0 ** emax, subnormals, saturate)

FP32 = eXmY(8, 23); FP16 = eXmY(5, 10); BF16 = eXmY(8, 7); TF32 = eXmY(8, 10)
E8M13 = eXmY(8, 13); E5M2 = eXmY(5, 2); E6M9 = eXmY(6, 9); E6M5 = eXmY(6, 5)
E4M3 = Fmt(4, -6, 448.0)
# "LBA"-like M7E4, exponent bias chosen by the user, no subnormals, saturating
def lba(m=7, e=4, bias=10): return eXmY(e, m, subnormals=False, saturate=True, bias=bias)

_two53 = 2.0 ** 53

def two_sum(a, b):
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)

def add_odd(a, b):
    """a+b in float64 rounded to odd -> any later rounding to <=50 bits is as from the exact sum."""
    with np.errstate(invalid="ignore", over="ignore"):
        s, e = two_sum(a, b)
        fix = np.isfinite(s) & (e != 0)
        i = s.view(np.int64)
        even = (i & 1) == 0
        # inexact and even: step one ulp towards the error's sign
        step = np.where((e > 0) == (s > 0), 1, -1)
        i2 = np.where(fix & even, i + step, i)
        return i2.view(np.float64)

def rnd(x, f: Fmt | None, mode="rne", rbits=None, rng=None):
    """Round float64 x (possibly sticky-odd) to Fmt. modes: rne rz rd ru rna sr"""
    x = np.asarray(x, np.float64)
    if f is None:
        return x
    with np.errstate(invalid="ignore", over="ignore"):
        ax = np.abs(x)
        _, ex = np.frexp(ax)
        e = np.maximum(ex - 1, f.emin)
        lsb = e - (f.p - 1)
        q = np.ldexp(ax, -lsb)                 # exact
        lo = np.floor(q); fr = q - lo
        neg = np.signbit(x)
        if mode == "rne":
            up = (fr > .5) | ((fr == .5) & (np.fmod(lo, 2) == 1))
        elif mode == "rna":
            up = fr >= .5
        elif mode == "rz":
            up = np.zeros(x.shape, bool)
        elif mode == "ru":
            up = (fr > 0) & ~neg
        elif mode == "rd":
            up = (fr > 0) & neg
        elif mode == "sr":
            R = 1 << rbits
            k = np.floor(fr * R)               # bits below the r-th are cut off
            up = k + rng.integers(0, R, x.shape) >= R
        else:
            raise ValueError(mode)
        y = np.ldexp(lo + up, lsb)
        if not f.subnormals:
            y = np.where(y < 2.0 ** f.emin, 0.0, y)
        if f.saturate:
            y = np.where(y > f.maxval, f.maxval, y)
        else:
            big = y > f.maxval
            if mode in ("rz",): over = np.where(np.isinf(ax), np.inf, f.maxval)
            elif mode == "rd": over = np.where(np.isinf(ax) | neg, np.inf, f.maxval)
            elif mode == "ru": over = np.where(np.isinf(ax) | ~neg, np.inf, f.maxval)
            else: over = np.inf
            y = np.where(big, over, y)
        y = np.copysign(y, x)
        return np.where(np.isnan(x), np.nan, np.where(np.isinf(x), x, y))

# -------------------------------------------------------- Part A: summation --
@dataclass(frozen=True)
class Step:
    """one multiply-accumulate: acc <- R_add( R_mul(a*b) + acc ); mul=None means exact product (FMA)."""
    add: Fmt | None = FP32
    mul: Fmt | None = None
    add_mode: str = "rne"
    mul_mode: str = "rne"
    rbits: int | None = None
    seed: int = 0

def _rng(s): return np.random.default_rng(s.seed) if "sr" in (s.add_mode, s.mul_mode) else None

def prods(a, b, s: Step, rng=None):
    return rnd(np.asarray(a, np.float64) * b, s.mul, s.mul_mode, s.rbits, rng)

def radd(x, y, s: Step, rng=None):
    return rnd(add_odd(np.asarray(x, np.float64), np.asarray(y, np.float64)), s.add, s.add_mode, s.rbits, rng)

def seq(a, b, s: Step, c=None):
    rng = _rng(s); p = prods(a, b, s, rng)
    acc = np.zeros(p.shape[:-1]) if c is None else np.asarray(c, np.float64)
    for k in range(p.shape[-1]):
        acc = radd(acc, p[..., k], s, rng)
    return acc

def seqsum(v, s: Step, rng=None):
    acc = np.zeros(v.shape[:-1])
    for k in range(v.shape[-1]):
        acc = radd(acc, v[..., k], s, rng)
    return acc

def chunked(a, b, n, inner: Step, outer: Step):
    """Wang 2018: each run of n terms from zero in `inner`; chunk totals added sequentially in `outer`."""
    K = a.shape[-1]; ri, ro = _rng(inner), _rng(outer); p = prods(a, b, inner, ri)
    acc = np.zeros(p.shape[:-1])
    for k in range(0, K, n):
        acc = radd(acc, seqsum(p[..., k:k + n], inner, ri), outer, ro)
    return acc

def tree(v, s: Step, rng=None):
    """binary tree, adjacent pairs, odd element carried to the next level unchanged."""
    while v.shape[-1] > 1:
        m = v.shape[-1] // 2
        w = radd(v[..., 0:2 * m:2], v[..., 1:2 * m:2], s, rng)
        v = np.concatenate([w, v[..., 2 * m:]], -1) if v.shape[-1] % 2 else w
    return v[..., 0]

def pairwise(a, b, s: Step, leaf=1):
    rng = _rng(s); p = prods(a, b, s, rng); K = p.shape[-1]
    if leaf > 1:
        p = np.stack([seqsum(p[..., k:k + leaf], s, rng) for k in range(0, K, leaf)], -1)
    return tree(p, s, rng)

def interleaved(a, b, lanes, s: Step, combine="seq"):
    """lane l sums terms l, l+lanes, ...; lane totals combined by seq or tree."""
    rng = _rng(s); p = prods(a, b, s, rng)
    t = np.stack([seqsum(p[..., l::lanes], s, rng) for l in range(min(lanes, p.shape[-1]))], -1)
    return tree(t, s, rng) if combine == "tree" else seqsum(t, s, rng)

def splitk(a, b, slices, inner: Step, reduce: Step):
    """contiguous slices of ceil(K/slices); each slice total first rounded to reduce.add (workspace dtype)."""
    K = a.shape[-1]; n = -(-K // slices); rr = _rng(reduce)
    acc = np.zeros(np.broadcast(a[..., 0], b[..., 0]).shape)
    for k in range(0, K, n):
        w = rnd(seq(a[..., k:k + n], b[..., k:k + n], inner), reduce.add, reduce.add_mode, reduce.rbits, rr)
        acc = radd(acc, w, reduce, rr)
    return acc

def kahan(a, b, s: Step):
    p = prods(a, b, s); S = np.zeros(p.shape[:-1]); C = np.zeros_like(S)
    for k in range(p.shape[-1]):
        y = radd(p[..., k], -C, s)
        t = radd(S, y, s)
        C = radd(radd(t, -S, s), -y, s)
        S = t
    return S

def neumaier(a, b, s: Step):
    p = prods(a, b, s); S = np.zeros(p.shape[:-1]); C = np.zeros_like(S)
    for k in range(p.shape[-1]):
        x = rnd(p[..., k], s.add, s.add_mode)
        t = radd(S, x, s)
        big = np.abs(S) >= np.abs(x)
        hi, lo = np.where(big, S, x), np.where(big, x, S)
        C = radd(C, radd(radd(hi, -t, s), lo, s), s)
        S = t
    return radd(S, C, s)

def twosum_cascade(a, b, s: Step):
    """Ogita-Rump-Oishi Sum2: branch-free TwoSum, error terms summed in the same format."""
    p = prods(a, b, s); S = np.zeros(p.shape[:-1]); C = np.zeros_like(S)
    for k in range(p.shape[-1]):
        x = rnd(p[..., k], s.add, s.add_mode)
        t = radd(S, x, s); z = radd(t, -S, s)
        e = radd(radd(S, -radd(t, -z, s), s), radd(x, -z, s), s)
        C = radd(C, e, s); S = t
    return radd(S, C, s)

def intacc(qa, qb, bits, mode="wrap", signed=True, shift=0, when="every"):
    """integer MACs, two's complement register of `bits`; products arithmetic-shifted right by `shift` first.
    mode wrap|saturate; when='every' acts at each add, 'end' only on the total. Returns (value, overflow count)."""
    p = (qa.astype(np.int64) * qb.astype(np.int64)) >> shift
    lo, hi = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    def fold(v):
        over = (v < lo) | (v > hi)
        return (np.clip(v, lo, hi) if mode == "saturate" else ((v - lo) % (1 << bits)) + lo), over
    acc = np.zeros(p.shape[:-1], np.int64); n = np.zeros_like(acc)
    if when == "end":
        acc, o = fold(p.sum(-1)); return acc, o.astype(np.int64)
    for k in range(p.shape[-1]):
        acc, o = fold(acc + p[..., k]); n += o
    return acc, n

def fixedacc(a, b, bits, frac, mode="saturate", rmode="rz"):
    """float inputs, fixed-point register Q(bits-frac).frac; each exact product rounded to the grid, then intacc rules."""
    q = np.ldexp(np.asarray(a, np.float64) * b, frac)
    q = {"rz": np.trunc, "rd": np.floor, "rne": np.rint}[rmode](q).astype(np.int64)
    v, n = intacc(q, np.ones_like(q), bits, mode)
    return np.ldexp(v.astype(np.float64), -frac), n

def a2q_min_bits(l1_qw, N, x_signed):
    """A2Q: smallest signed P with sum|q_w| * 2**(N - x_signed) <= 2**(P-1) - 1 (worst-case input magnitude 2**(N-signed))."""
    import math
    return math.ceil(math.log2(float(l1_qw) * 2.0 ** (N - int(x_signed)) + 1)) + 1

def a2q_l1_limit(P, N, x_signed): return (2 ** (P - 1) - 1) / 2.0 ** (N - int(x_signed))
def a2q_plus_l1_limit(P, N): return (2 ** P - 2) / (2 ** N - 1)       # zero-centred weights

def exact(a, b, f: Fmt | None = FP32, mode="rne"):
    """Kulisch: whole dot exact, one rounding (Python ints through Fraction; slow)."""
    A, B = np.broadcast_arrays(a, b); out = np.empty(A.shape[:-1])
    for i in np.ndindex(*out.shape):
        out[i] = float(frac_round(sum((Fraction(float(x)) * Fraction(float(y)) for x, y in zip(A[i], B[i])), Fraction(0)), f, mode))
    return out

# ------------------------------------------------ Part C: Fraction oracle ----
def frac_round(x: Fraction, f: Fmt | None, mode="rne", rbits=None, rint=None):
    if f is None or x == 0: return x
    s, ax = (1 if x > 0 else -1), abs(x)
    e = ax.numerator.bit_length() - ax.denominator.bit_length()
    if Fraction(2) ** e > ax: e -= 1
    e = max(e, f.emin); u = Fraction(2) ** (e - f.p + 1)
    q = ax / u; lo = q.numerator // q.denominator; fr = q - lo
    if mode == "rne": up = fr > Fraction(1, 2) or (fr == Fraction(1, 2) and lo % 2)
    elif mode == "rna": up = fr >= Fraction(1, 2)
    elif mode == "rz": up = False
    elif mode == "ru": up = fr > 0 and s > 0
    elif mode == "rd": up = fr > 0 and s < 0
    elif mode == "sr":
        k = (fr * 2 ** rbits).numerator // (fr * 2 ** rbits).denominator
        up = k + rint >= 2 ** rbits
    y = (lo + (1 if up else 0)) * u
    if not f.subnormals and y < Fraction(2) ** f.emin: y = Fraction(0)
    if y > Fraction(f.maxval):
        if f.saturate or mode == "rz" or (mode == "rd" and s > 0) or (mode == "ru" and s < 0): y = Fraction(f.maxval)
        else: raise OverflowError
    return s * y

# --------------------------------- Part B: hardware fused block accumulate ---
@dataclass(frozen=True)
class Enc:
    """storage format on raw bits: e exponent bits, m mantissa bits, bias; kind: ieee | fn (e4m3fn) | fnuz | none(no inf/nan) | e8m0"""
    e: int; m: int; bias: int; kind: str = "ieee"; unsigned: bool = False

ENC = dict(f16=Enc(5, 10, 15), bf16=Enc(8, 7, 127), f32=Enc(8, 23, 127), e5m2=Enc(5, 2, 15),
           e4m3=Enc(4, 3, 7, "fn"), e4m3fnuz=Enc(4, 3, 8, "fnuz"), e5m2fnuz=Enc(5, 2, 16, "fnuz"),
           e2m1=Enc(2, 1, 1, "none"), e3m2=Enc(3, 2, 3, "none"), e2m3=Enc(2, 3, 1, "none"),
           ue8m0=Enc(8, 0, 127, "e8m0", True), ue4m3=Enc(4, 3, 7, "fn", True))
ENC["tf32"] = ENC["f32"]; ENC["xf32"] = ENC["f32"]

ZERO_EXP = -126   # exponent contributed by a zero operand (a, b, scale or c), whatever its format

def decode(bits, name):
    """-> sign(+-1), integer significand, exponent of the hidden-bit position, nan, inf. value = sign*sig*2**(exp-m)"""
    f = ENC[name]; x = np.asarray(bits).astype(np.int64)
    if f.kind == "e8m0":
        return np.ones_like(x), np.ones_like(x), x - f.bias, x == 255, np.zeros(x.shape, bool)
    man = x & ((1 << f.m) - 1); ex = (x >> f.m) & ((1 << f.e) - 1); sg = (x >> (f.m + f.e)) & 1
    if name in ("tf32", "xf32"): man = man >> 13 << 13
    top = (1 << f.e) - 1
    nan = inf = np.zeros(x.shape, bool)
    if f.kind == "ieee":
        nan = (ex == top) & (man != 0); inf = (ex == top) & (man == 0)
    elif f.kind == "fn":
        nan = (ex == top) & (man == (1 << f.m) - 1)
    elif f.kind == "fnuz":
        nan = (sg == 1) & (ex == 0) & (man == 0)
    sub = ex == 0
    sig = np.where(sub, man, man | (1 << f.m)); e = np.where(sub, 1, ex) - f.bias
    e = np.where(sig == 0, ZERO_EXP, e)
    return (np.ones_like(sg) if f.unsigned else 1 - 2 * sg), sig, e, nan, inf

def align(sig, sh, mode="rz"):
    """signed integer sig * 2**sh with bits below 0 dropped toward zero (rz) or toward -inf (rd)."""
    l = np.clip(sh, 0, 62); r = np.clip(-sh, 0, 62)
    if mode == "rd": return (sig << l) >> r
    return np.sign(sig) * ((np.abs(sig) << l) >> r)

def bitlen(x):
    x = x.astype(np.int64); _, e = np.frexp(x.astype(np.float64)); return e      # exact for |x| < 2**53

def encode(S, e2, name, mode, mkeep=None):
    """bits of round(S * 2**e2) in f16/f32; mkeep: keep only that many fraction bits (f32_e8m13)."""
    f = ENC[name]; m = f.m if mkeep is None else mkeep
    neg = S < 0; a = np.abs(S); emin = 1 - f.bias
    ev = np.where(a == 0, emin, bitlen(a) - 1 + e2)
    lsb = np.maximum(ev, emin) - m
    sh = e2 - lsb
    l = np.clip(sh, 0, 62); r = np.clip(-sh, 0, 62)
    q = (a << l) >> r
    if mode == "rne":
        rem = a & ((np.int64(1) << r) - 1); half = np.where(r > 0, np.int64(1) << np.maximum(r - 1, 0), 0)
        big = -sh > 62
        q = np.where(big, 0, q + ((r > 0) & ((rem > half) | ((rem == half) & (q & 1 == 1)))))
    else:
        q = np.where(-sh > 62, 0, q)
    up = q >= (1 << (m + 1)); q = np.where(up, q >> 1, q); E = np.maximum(ev, emin) + up
    q = q << (f.m - m)
    isn = q >= (1 << f.m)
    biased = np.where(isn, E + f.bias, 0)
    over = biased >= (1 << f.e) - 1
    man = q & ((1 << f.m) - 1)
    out = np.where(over, ((1 << f.e) - 1) << f.m, (biased << f.m) | man)
    out = np.where((q == 0), 0, out)
    return np.where(neg & (q != 0), out | (1 << (f.e + f.m)), out)

@dataclass(frozen=True)
class TC:
    """NVIDIA-style fused block step: D = RO( 2**(E-F) * sum_i trunc(term_i * 2**(F-E)) ), E = max exponent of all terms, c among them"""
    step: int              # products consumed per rounding
    F: int                 # fraction bits kept below the maximum exponent
    out: str               # 'f32' 'f16'
    out_mode: str = "rz"   # f32 rz, f16 rne
    mkeep: int | None = None
    c: str = "f32"

CANON_NAN = dict(f16=0x7FFF, f32=0x7FFFFFFF)

def _step_nv(a, b, c, ta, tb, tc: TC, cfmt, sa=None, sb=None, sfmt=None):
    A = decode(a, ta); B = decode(b, tb); C = decode(c, cfmt)
    sgn = A[0] * B[0]; sig = A[1] * B[1]; e = A[2] + B[2]; fb = ENC[ta].m + ENC[tb].m
    pn = A[3] | B[3] | (A[4] & (B[1] == 0) & ~B[4]) | (B[4] & (A[1] == 0) & ~A[4])
    pi = (A[4] | B[4]) & ~pn
    if sa is not None:
        s0, s1 = decode(sa, sfmt), decode(sb, sfmt)
        e = e + (s0[2] + s1[2])[..., None]; pn = pn | (s0[3] | s1[3])[..., None]
    pinf = (pi & (sgn > 0)).any(-1) | (C[4] & (C[0] > 0)); ninf = (pi & (sgn < 0)).any(-1) | (C[4] & (C[0] < 0))
    nan = pn.any(-1) | C[3] | (pinf & ninf)
    E = np.maximum(e.max(-1), C[2])
    S = align(sgn * sig, tc.F - fb + e - E[..., None]).sum(-1) + align(C[0] * C[1], tc.F - ENC[cfmt].m + C[2] - E)
    d = encode(S, E - tc.F, tc.out, tc.out_mode, tc.mkeep)
    inf = ((1 << ENC[tc.out].e) - 1) << ENC[tc.out].m; sb_ = 1 << (ENC[tc.out].e + ENC[tc.out].m)
    d = np.where(pinf, inf, d); d = np.where(ninf, inf | sb_, d)
    return np.where(nan, CANON_NAN[tc.out], d)

def mma(a, b, c, ta, tb, tc: TC, cfmt=None, sa=None, sb=None, sfmt=None):
    """a,b: (...,K) raw bits broadcast together, c: (...) raw bits; K any multiple of tc.step; c is the running accumulator."""
    cfmt = cfmt or tc.c; K = a.shape[-1]
    if cfmt == "f16" and tc.out == "f32":      # C is widened first, so an f16 subnormal C aligns by its true exponent
        c = np.asarray(c).astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32).astype(np.int64); cfmt = "f32"
    for k in range(0, K, tc.step):
        kw = {} if sa is None else dict(sa=sa[..., k // tc.step], sb=sb[..., k // tc.step], sfmt=sfmt)
        c = _step_nv(a[..., k:k + tc.step], b[..., k:k + tc.step], c, ta, tb, tc, cfmt, **kw)
        cfmt = tc.out
    return c

def mma_nvf4(a, b, c, sa, sb, sfmt, block, F=35, group=16, step=64):
    """E2M1 x E2M1 with block scales: exact sums of 16 products; scale significands multiply the group sum, only scale exponents align."""
    for k0 in range(0, a.shape[-1], step):
        A = decode(a[..., k0:k0 + step], "e2m1"); B = decode(b[..., k0:k0 + step], "e2m1"); C = decode(c, "f32")
        p = A[0] * B[0] * A[1] * B[1]
        # 2 fraction bits in total, exponents differ: put every product on the 2**-2 grid
        ea = np.where(A[1] == 0, 0, A[2]); eb = np.where(B[1] == 0, 0, B[2])
        p = p << (ea + eb)
        g = p.reshape(*p.shape[:-1], step // group, group).sum(-1)
        idx = (k0 + np.arange(0, step, group)) // block
        s0, s1 = decode(sa[..., idx], sfmt), decode(sb[..., idx], sfmt); ms = ENC[sfmt].m
        t = g * s0[1] * s1[1]; fb = 2 + 2 * ms; e = s0[2] + s1[2]
        E = np.maximum(e.max(-1), C[2])
        S = align(t, F - fb + e - E[..., None]).sum(-1) + align(C[0] * C[1], F - 23 + C[2] - E)
        d = encode(S, E - F, "f32", "rz")
        alls0 = decode(sa[..., k0 // block:(k0 + step) // block], sfmt); alls1 = decode(sb[..., k0 // block:(k0 + step) // block], sfmt)
        nan = alls0[3].any(-1) | alls1[3].any(-1) | C[3]
        d = np.where(C[4], np.where(C[0] < 0, 0xFF800000, 0x7F800000), d)      # assumption: +-inf c passes through
        c = np.where(nan, 0x7FFFFFFF, d)
    return c

def _f64_to_f32bits(x):
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x, np.float64).astype(np.float32).view(np.uint32).astype(np.int64)

def mfma_cdna3(a, b, c, t_a, t_b, group, fp8=False):
    """AMD CDNA3: products of a group truncated (rz) to 24 bits below their own max exponent, then total rounded DOWN to 31 bits
    and c rounded DOWN to 24 bits below max(e,ec); final sum to f32 RNE."""
    for k in range(0, a.shape[-1], group):
        A = decode(a[..., k:k + group], t_a); B = decode(b[..., k:k + group], t_b); C = decode(c, "f32")
        sgn = A[0] * B[0]; sig = A[1] * B[1]; e = A[2] + B[2]; fb = ENC[t_a].m + ENC[t_b].m
        pn = A[3] | B[3] | (A[4] & (B[1] == 0) & ~B[4]) | (B[4] & (A[1] == 0) & ~A[4]); pi = (A[4] | B[4]) & ~pn
        tp = (pi & (sgn > 0)).any(-1); tn = (pi & (sgn < 0)).any(-1)
        truep = tp | (C[4] & (C[0] > 0)); truen = tn | (C[4] & (C[0] < 0))
        nan = pn.any(-1) | C[3] | (truep & truen)
        big = (bitlen(sig) - 1 - fb + e >= 128) & ~pi & ~pn           # finite product >= 2**128 acts as infinity
        bp = (big & (sgn > 0)).any(-1); bn = (big & (sgn < 0)).any(-1)
        def fs(lo, st):
            E = e[..., lo::st].max(-1)
            return align((sgn * sig)[..., lo::st], 24 - fb + e[..., lo::st] - E[..., None]).sum(-1), E
        if fp8:
            S0, e0 = fs(0, 2); S1, e1 = fs(1, 2); E = np.maximum(e0, e1)
            S = align(S0, e0 - E, "rd") + align(S1, e1 - E, "rd")
        else:
            S, E = fs(0, 1)
        M = np.maximum(E, C[2])
        Sp = align(S, 31 - 24 + E - M, "rd")                          # 31-bit grid
        Sc = align(C[0] * C[1], 24 - 23 + C[2] - M, "rd")             # 24-bit grid
        if fp8: Sc = np.where(C[2] >= M - 25, Sc, 0)
        tot = Sp + (Sc << 7)
        d = encode(tot, M - 31, "f32", "rne")
        d = np.where(bp & bn, 0x7FC00000, np.where(bp, 0x7F800000, np.where(bn, 0xFF800000, d)))
        d = np.where(truep, 0x7F800000, np.where(truen, 0xFF800000, d))
        c = np.where(nan, 0x7FC00000, d)
    return c

def mfma_pairwise(a, b, c, t, group, ftz):
    """AMD CDNA1 (ftz=False) / CDNA2 (ftz=True) f16/bf16: f32 RNE tree over `group` products, then f32 RNE add to c."""
    def val(x, tt):
        s, g, e, nan, inf = decode(x, tt); v = np.ldexp((s * g).astype(np.float64), (e - ENC[tt].m).astype(int))
        v = np.where(g == 0, np.where(s < 0, -0.0, 0.0), v)
        v = np.where(inf, s * np.inf, v); v = np.where(nan, np.nan, v)
        if ftz: v = np.where(np.abs(v) < 2.0 ** (1 - ENC[tt].bias), 0.0, v)
        return v
    def r(x):
        y = np.asarray(x, np.float64).astype(np.float32).astype(np.float64)
        return np.where(np.abs(y) < 2.0 ** -126, np.copysign(0.0, y), y) if ftz else y
    with np.errstate(all="ignore"):
        A, B, S = val(a, t), val(b, t), val(c, "f32")
        for k in range(0, a.shape[-1], group):
            v = r(A[..., k:k + group] * B[..., k:k + group] + 0.0)   # a*b fused with +0: a -0 product becomes +0
            while v.shape[-1] > 1: v = r(v[..., 0::2] + v[..., 1::2])
            S = r(S + v[..., 0])
    return S.astype(np.float32).view(np.uint32).astype(np.int64)

# ------------------------------------------------------------ presets --------
def nv_preset(arch, unit, a, d, k):
    """parameters of one instruction. arch: volta turing ampere ada hopper blackwell rtx_blackwell; unit: mma wgmma tcgen05 ; a: operand dtype; d: accumulator; k: instruction K"""
    F = {"volta": 23, "turing": 24, "ampere": 24, "ada": 24}.get(arch, 25)
    fp8 = a in ("e4m3", "e5m2"); mkeep = None
    if fp8 and (arch == "ada" or unit == "wgmma"):
        F = 13; mkeep = 13 if d == "f32" else None
    step = k
    if arch in ("ampere", "ada") and unit == "mma" and (k, a) in ((8, "tf32"), (16, "f16"), (16, "bf16"), (32, "e4m3"), (32, "e5m2")):
        step = k // 2
    return TC(step, F, d, "rz" if d == "f32" else "rne", mkeep, d)
