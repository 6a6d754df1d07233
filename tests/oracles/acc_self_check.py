# ruff: noqa
# fmt: off
"""Self test of acc_reference.py against its slow exact oracle, on random and special operands.

Run:  python acc_self_check.py          -> prints counts
"""
from __future__ import annotations
from fractions import Fraction
import numpy as np
from acc_reference import *

# ------------------------------------------------------------ self test ------
def self_test(n=40, K=24, seed=1):
    g = np.random.default_rng(seed); tot = bad = 0
    def chk(name, got, want):
        nonlocal tot, bad
        got = np.asarray(got, float); ok = sum(float(x) == float(y) for x, y in zip(got.ravel(), want)); tot += got.size; bad += got.size - ok
        print(f"  {name:44s} {ok}/{got.size}")
    fin = rnd(g.standard_normal((n, K)) * 2.0 ** g.integers(-6, 7, (n, K)), E5M2); fb = rnd(g.standard_normal((n, K)), E4M3)
    F_ = lambda x: Fraction(float(x))
    def osum(vs, f, m):
        s = Fraction(0)
        for v in vs: s = frac_round(s + v, f, m)
        return s
    for f, fn in ((FP32, "fp32"), (FP16, "fp16"), (BF16, "bf16"), (E6M9, "e6m9"), (E6M5, "e6m5"), (E8M13, "e8m13"), (lba(), "lba m7e4")):
        for m in ("rne", "rz", "rd", "ru", "rna"):
            if f.subnormals is False and m != "rz": continue
            st = Step(f, None, m); P = [[F_(x) * F_(y) for x, y in zip(r, q)] for r, q in zip(fin, fb)]
            chk(f"seq fma {fn} {m}", seq(fin, fb, st), [osum(p, f, m) for p in P])
            st2 = Step(f, E5M2, m, "rne"); Q = [[frac_round(x, E5M2) for x in p] for p in P]
            chk(f"seq mul e5m2 + add {fn} {m}", seq(fin, fb, st2), [osum(p, f, m) for p in Q])
        st = Step(f, None, "rne"); m = "rne" if f.subnormals else "rz"; st = Step(f, None, m)
        chk(f"chunk 8 {fn}/fp16", chunked(fin, fb, 8, st, Step(FP16)), [osum([osum(p[i:i + 8], f, m) for i in range(0, K, 8)], FP16, "rne") for p in P])
        def ot(v):
            while len(v) > 1: v = [frac_round(v[2 * i] + v[2 * i + 1], f, m) for i in range(len(v) // 2)] + ([v[-1]] if len(v) % 2 else [])
            return v[0]
        chk(f"pairwise {fn}", pairwise(fin, fb, st), [ot(list(p)) for p in P])
        chk(f"interleaved 4 {fn}", interleaved(fin, fb, 4, st), [osum([osum(p[l::4], f, m) for l in range(4)], f, m) for p in P])
        chk(f"split-K 3 {fn} reduce bf16", splitk(fin, fb, 3, st, Step(BF16)), [osum([frac_round(osum(p[i:i + 8], f, m), BF16) for i in range(0, K, 8)], BF16, "rne") for p in P])
        if f.subnormals:
            r_ = lambda x: frac_round(x, f, m)
            def ok_(p):
                S = C = Fraction(0)
                for x in p:
                    y = r_(x - C); t = r_(S + y); C = r_(r_(t - S) - y); S = t
                return S
            chk(f"kahan {fn}", kahan(fin, fb, st), [ok_(p) for p in P])
            def on(p):
                S = C = Fraction(0)
                for x in map(r_, p):
                    t = r_(S + x); h, l = (S, x) if abs(S) >= abs(x) else (x, S); C = r_(C + r_(r_(h - t) + l)); S = t
                return r_(S + C)
            chk(f"neumaier {fn}", neumaier(fin, fb, st), [on(p) for p in P])
            def o2(p):
                S = C = Fraction(0)
                for x in map(r_, p):
                    t = r_(S + x); z = r_(t - S); C = r_(C + r_(r_(S - r_(t - z)) + r_(x - z))); S = t
                return r_(S + C)
            chk(f"two-sum cascade {fn}", twosum_cascade(fin, fb, st), [o2(p) for p in P])
        # stochastic rounding with r bits: replay the same integers
        for rb in (3, 10):
            st = Step(f, None, "sr", rbits=rb, seed=7); got = seq(fin, fb, st); rr = np.random.default_rng(7); S = [Fraction(0)] * n
            for k in range(K):
                ri = rr.integers(0, 1 << rb, n)
                S = [frac_round(s + p[k], f, "sr", rb, int(i)) for s, p, i in zip(S, P, ri)]
            chk(f"SR r={rb} {fn}", got, S)
    qa, qb = g.integers(-128, 128, (n, 64)), g.integers(-8, 8, (n, 64))
    for bits in (8, 12, 16):
        for mode in ("wrap", "saturate"):
            w = []
            for r, q in zip(qa.tolist(), qb.tolist()):
                s = 0
                for x, y in zip(r, q):
                    s += x * y; h = 1 << (bits - 1)
                    s = (s + h) % (2 * h) - h if mode == "wrap" else max(-h, min(h - 1, s))
                w.append(s)
            chk(f"int{bits} {mode}", intacc(qa, qb, bits, mode)[0], w)
    # round-to-odd check against exact on wild exponents
    x = g.standard_normal(4000) * 2.0 ** g.integers(-60, 60, 4000); y = -x * (1 + g.integers(-3, 4, 4000) * 2.0 ** g.integers(-52, -5, 4000))
    for f, fn in ((FP32, "fp32"), (FP16, "fp16")):
        for m in ("rne", "rz"):
            w = []
            for p, q in zip(x, y):
                try: w.append(float(frac_round(F_(p) + F_(q), f, m)))
                except OverflowError: w.append(float("inf"))
            got = rnd(add_odd(x, y), f, m)
            chk(f"add_odd cancel {fn} {m}", np.where(np.isinf(got), np.inf, got), w)
    print(f"generic self test: {tot - bad}/{tot} match"); return bad

if __name__ == "__main__":
    raise SystemExit(1 if self_test() else 0)
