"""keras.mixed_precision: the names of dtype policies in Keras 2's scripts."""

from __future__ import annotations

from meganeura.dtype_policies import DTypePolicy as DTypePolicy
from meganeura.dtype_policies import dtype_policy as dtype_policy
from meganeura.dtype_policies import set_dtype_policy as set_dtype_policy
from meganeura.optim import LossScaleOptimizer as LossScaleOptimizer

Policy, global_policy, set_global_policy = DTypePolicy, dtype_policy, set_dtype_policy
