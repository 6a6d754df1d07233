"""microxcaling's ``mx.simd_ops``, and of its ``vector_ops`` what the module has too."""

from .simd import simd_add as simd_add
from .simd import simd_div as simd_div
from .simd import simd_exp as simd_exp
from .simd import simd_log as simd_log
from .simd import simd_mul as simd_mul
from .simd import simd_norm as simd_norm
from .simd import simd_reduce_mean as simd_reduce_mean
from .simd import simd_reduce_sum as simd_reduce_sum
from .simd import simd_split as simd_split
from .simd import simd_sqrt as simd_sqrt
from .simd import simd_square as simd_square
from .simd import simd_sub as simd_sub
from .vector_ops import vec_add as vec_add
from .vector_ops import vec_div as vec_div
from .vector_ops import vec_exp as vec_exp
from .vector_ops import vec_exp2 as vec_exp2
from .vector_ops import vec_mul as vec_mul
from .vector_ops import vec_quantize as vec_quantize
from .vector_ops import vec_recip as vec_recip
from .vector_ops import vec_reduce_mean as vec_reduce_mean
from .vector_ops import vec_reduce_sum as vec_reduce_sum
from .vector_ops import vec_sqrt as vec_sqrt
from .vector_ops import vec_sub as vec_sub
from .vector_ops import vec_tanh as vec_tanh
