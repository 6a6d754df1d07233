"""The columns of rows in words: one line for each, for pages that show them to people who have not read the source."""

from __future__ import annotations

__all__ = ["COLUMNS", "SYMBOLS"]

#: What the letters in the formulas stand for.
SYMBOLS = (
    "y: result; t: true value; e = y - t; S: sum of |a b| over the terms of an output; u: unit roundoff of the "
    "accumulator's register, 2^-p for a significand of p bits"
)

#: Column -> what it is.
COLUMNS = {
    "label": "name of the curve",
    "spec": "what is computed, in full: operands : accumulator -> output",
    "seed": "of the operands and of random bits",
    "K": "terms of each sum",
    "M": "rows of the result",
    "N": "columns of the result",
    "dist": "distribution of the operands, A*B where they differ",
    "in": "format of the operands, and what shares a scale",
    "scale": "factor of both operands before they take their format",
    "over": "what varies within a row: batch, permutation, splits",
    "acc_format": "format of the accumulator",
    "scheme": "how a wide product is made of narrow ones",
    "products": "matrix products that the scheme makes",
    "truth": "how the true value was found",
    "rel_fro": "norm(e) / norm(t), Frobenius",
    "max_rel": "largest |e / t| where t is not 0",
    "max_rel_large": "the same where t is at least of average size, mean of |t|",
    "mean_abs": "mean of |e|",
    "ratio": "mean of y / t where t is not 0; 1 is right",
    "ratio_se": "standard error of ratio, rows of the result as draws",
    "bias": "mean of e sign(t): below 0, results are too small in magnitude",
    "bias_se": "standard error of bias, rows of the result as draws",
    "abs_bias_ratio": "|bias| / bias_se: below 4, chance alone may have made it",
    "bias_u": "mean of e sign(t) / (S u): bias in units of the register",
    "r": "random bits of each stochastic rounding",
    "bwd_err_u_mean": "mean of |e| / (S u): backward error in units of the register",
    "bwd_err_u_p99": "99th percentile of |e| / (S u)",
    "bwd_err_u_max": "largest |e| / (S u); it grows with the number of outputs",
    "bits_lost": "log2 of bwd_err_u_mean, at least 0",
    "max_err_over_s": "largest |e| / S",
    "sqnr_db": "10 log10(sum t^2 / sum e^2), decibels",
    "nonfinite": "share of outputs that are infinite or NaN; no other column counts them",
    "bound_det": "bound on |e| / (S u) that always holds, to first order in u",
    "bound_prob": "bound on |e| / (S u) that independent roundings of mean zero keep in 95 of 100 cases",
    "accuracy": "share of right answers",
    "best_accuracy": "the best of all epochs",
    "logit_err": "norm(logits - exact) / norm(exact), Frobenius",
    "agree": "share of inputs whose largest logit is that of the exact pass",
    "significand_bits": "of the accumulator's register, leading bit included",
    "first_loss": "mean loss over the first epoch",
    "train_loss": "mean loss over the last epoch",
    "diverged": "whether a loss was infinite or NaN",
    "equal": "share of elements of equal bits; all NaN count as one",
    "ulp_mean": "mean distance in units in the last place",
    "ulp_max": "largest distance in units in the last place",
    "sign_bias": "share of elements above less share below: -1 where all are below, 0 for no side",
    "overflow_rate": "share of sums whose register left its range at least once",
    "equal_share": "share of results that equal the exact sum",
    "certified_bits": "least width that is certified not to overflow, whatever the input",
    "worst_case_bits": "least width in which the worst input stays",
    "variants_tried": "in how many ways the product was computed",
    "distinct": "how many different results there were",
    "spread_ulp": "largest distance between them, in units in the last place",
    "argmax_flips": "share of rows whose largest element changes place",
    "swamped": "share of additions that left the register unchanged although the term was not 0",
    "inexact": "share of additions that lost bits",
    "underflow": "share of additions that ended below the smallest normal number, inexactly",
    "overflow": "share of additions beyond the largest number",
    "macs_per_s": "multiply-adds a second; depends on the machine, part of no check",
    "elapsed_s": "seconds; depends on the machine, part of no check",
}
