"""Operations, by the names of keras.ops where Keras has them (https://keras.io/api/ops).

Each works on arrays (computed at once), on nodes of a graph that is being recorded, and on the
KerasTensors of a functional model.
"""

from meganeura.ops import fused as fused
from meganeura.ops import index as index
from meganeura.ops import leaf as leaf
from meganeura.ops import movement as movement
from meganeura.ops import pointwise as pointwise
from meganeura.ops import random_bits as random_bits
from meganeura.ops import reduction as reduction
from meganeura.ops.convolution import (
    conv as conv,
)
from meganeura.ops.convolution import (
    conv_transpose as conv_transpose,
)
from meganeura.ops.convolution import (
    depthwise_conv as depthwise_conv,
)
from meganeura.ops.convolution import (
    separable_conv as separable_conv,
)
from meganeura.ops.creation import (
    arange as arange,
)
from meganeura.ops.creation import (
    array as array,
)
from meganeura.ops.creation import (
    convert_to_numpy as convert_to_numpy,
)
from meganeura.ops.creation import (
    convert_to_tensor as convert_to_tensor,
)
from meganeura.ops.creation import (
    copy as copy,
)
from meganeura.ops.creation import (
    diag as diag,
)
from meganeura.ops.creation import (
    diagonal as diagonal,
)
from meganeura.ops.creation import (
    dtype as dtype,
)
from meganeura.ops.creation import (
    empty as empty,
)
from meganeura.ops.creation import (
    eye as eye,
)
from meganeura.ops.creation import (
    full as full,
)
from meganeura.ops.creation import (
    full_like as full_like,
)
from meganeura.ops.creation import (
    identity as identity,
)
from meganeura.ops.creation import (
    linspace as linspace,
)
from meganeura.ops.creation import (
    meshgrid as meshgrid,
)
from meganeura.ops.creation import (
    multi_hot as multi_hot,
)
from meganeura.ops.creation import (
    ndim as ndim,
)
from meganeura.ops.creation import (
    one_hot as one_hot,
)
from meganeura.ops.creation import (
    ones as ones,
)
from meganeura.ops.creation import (
    ones_like as ones_like,
)
from meganeura.ops.creation import (
    shape as shape,
)
from meganeura.ops.creation import (
    size as size,
)
from meganeura.ops.creation import (
    trace as trace,
)
from meganeura.ops.creation import (
    tri as tri,
)
from meganeura.ops.creation import (
    tril as tril,
)
from meganeura.ops.creation import (
    triu as triu,
)
from meganeura.ops.creation import (
    zeros as zeros,
)
from meganeura.ops.creation import (
    zeros_like as zeros_like,
)
from meganeura.ops.cumsum import (
    cumprod as cumprod,
)
from meganeura.ops.cumsum import (
    cumsum as cumsum,
)
from meganeura.ops.dispatch import convert_to_node as convert_to_node
from meganeura.ops.dispatch import is_tensor as is_tensor
from meganeura.ops.dispatch import operation as operation
from meganeura.ops.elementwise import (
    abs as abs,
)
from meganeura.ops.elementwise import (
    absolute as absolute,
)
from meganeura.ops.elementwise import (
    add as add,
)
from meganeura.ops.elementwise import (
    arccos as arccos,
)
from meganeura.ops.elementwise import (
    arccosh as arccosh,
)
from meganeura.ops.elementwise import (
    arcsin as arcsin,
)
from meganeura.ops.elementwise import (
    arcsinh as arcsinh,
)
from meganeura.ops.elementwise import (
    arctan as arctan,
)
from meganeura.ops.elementwise import (
    arctan2 as arctan2,
)
from meganeura.ops.elementwise import (
    arctanh as arctanh,
)
from meganeura.ops.elementwise import (
    bitwise_and as bitwise_and,
)
from meganeura.ops.elementwise import (
    bitwise_invert as bitwise_invert,
)
from meganeura.ops.elementwise import (
    bitwise_left_shift as bitwise_left_shift,
)
from meganeura.ops.elementwise import (
    bitwise_not as bitwise_not,
)
from meganeura.ops.elementwise import (
    bitwise_or as bitwise_or,
)
from meganeura.ops.elementwise import (
    bitwise_right_shift as bitwise_right_shift,
)
from meganeura.ops.elementwise import (
    bitwise_xor as bitwise_xor,
)
from meganeura.ops.elementwise import (
    cast as cast,
)
from meganeura.ops.elementwise import (
    ceil as ceil,
)
from meganeura.ops.elementwise import (
    celu as celu,
)
from meganeura.ops.elementwise import (
    clip as clip,
)
from meganeura.ops.elementwise import (
    cos as cos,
)
from meganeura.ops.elementwise import (
    cosh as cosh,
)
from meganeura.ops.elementwise import (
    divide as divide,
)
from meganeura.ops.elementwise import (
    elu as elu,
)
from meganeura.ops.elementwise import (
    equal as equal,
)
from meganeura.ops.elementwise import (
    erf as erf,
)
from meganeura.ops.elementwise import (
    exp as exp,
)
from meganeura.ops.elementwise import (
    expm1 as expm1,
)
from meganeura.ops.elementwise import (
    floor as floor,
)
from meganeura.ops.elementwise import (
    floor_divide as floor_divide,
)
from meganeura.ops.elementwise import (
    gelu as gelu,
)
from meganeura.ops.elementwise import (
    greater as greater,
)
from meganeura.ops.elementwise import (
    greater_equal as greater_equal,
)
from meganeura.ops.elementwise import (
    hard_shrink as hard_shrink,
)
from meganeura.ops.elementwise import (
    hard_sigmoid as hard_sigmoid,
)
from meganeura.ops.elementwise import (
    hard_silu as hard_silu,
)
from meganeura.ops.elementwise import (
    hard_swish as hard_swish,
)
from meganeura.ops.elementwise import (
    hard_tanh as hard_tanh,
)
from meganeura.ops.elementwise import (
    isclose as isclose,
)
from meganeura.ops.elementwise import (
    isfinite as isfinite,
)
from meganeura.ops.elementwise import (
    isinf as isinf,
)
from meganeura.ops.elementwise import (
    isnan as isnan,
)
from meganeura.ops.elementwise import (
    leaky_relu as leaky_relu,
)
from meganeura.ops.elementwise import (
    left_shift as left_shift,
)
from meganeura.ops.elementwise import (
    less as less,
)
from meganeura.ops.elementwise import (
    less_equal as less_equal,
)
from meganeura.ops.elementwise import (
    log as log,
)
from meganeura.ops.elementwise import (
    log1p as log1p,
)
from meganeura.ops.elementwise import (
    log2 as log2,
)
from meganeura.ops.elementwise import (
    log10 as log10,
)
from meganeura.ops.elementwise import (
    log_sigmoid as log_sigmoid,
)
from meganeura.ops.elementwise import (
    logaddexp as logaddexp,
)
from meganeura.ops.elementwise import (
    logical_and as logical_and,
)
from meganeura.ops.elementwise import (
    logical_not as logical_not,
)
from meganeura.ops.elementwise import (
    logical_or as logical_or,
)
from meganeura.ops.elementwise import (
    logical_xor as logical_xor,
)
from meganeura.ops.elementwise import (
    maximum as maximum,
)
from meganeura.ops.elementwise import (
    minimum as minimum,
)
from meganeura.ops.elementwise import (
    mish as mish,
)
from meganeura.ops.elementwise import (
    mod as mod,
)
from meganeura.ops.elementwise import (
    multiply as multiply,
)
from meganeura.ops.elementwise import (
    nan_to_num as nan_to_num,
)
from meganeura.ops.elementwise import (
    negative as negative,
)
from meganeura.ops.elementwise import (
    not_equal as not_equal,
)
from meganeura.ops.elementwise import (
    power as power,
)
from meganeura.ops.elementwise import (
    reciprocal as reciprocal,
)
from meganeura.ops.elementwise import (
    relu as relu,
)
from meganeura.ops.elementwise import (
    relu6 as relu6,
)
from meganeura.ops.elementwise import (
    right_shift as right_shift,
)
from meganeura.ops.elementwise import (
    round as round,
)
from meganeura.ops.elementwise import (
    rsqrt as rsqrt,
)
from meganeura.ops.elementwise import (
    selu as selu,
)
from meganeura.ops.elementwise import (
    sigmoid as sigmoid,
)
from meganeura.ops.elementwise import (
    sign as sign,
)
from meganeura.ops.elementwise import (
    silu as silu,
)
from meganeura.ops.elementwise import (
    sin as sin,
)
from meganeura.ops.elementwise import (
    sinh as sinh,
)
from meganeura.ops.elementwise import (
    soft_shrink as soft_shrink,
)
from meganeura.ops.elementwise import (
    softplus as softplus,
)
from meganeura.ops.elementwise import (
    softsign as softsign,
)
from meganeura.ops.elementwise import (
    sparse_plus as sparse_plus,
)
from meganeura.ops.elementwise import (
    sparse_sigmoid as sparse_sigmoid,
)
from meganeura.ops.elementwise import (
    sqrt as sqrt,
)
from meganeura.ops.elementwise import (
    square as square,
)
from meganeura.ops.elementwise import (
    squareplus as squareplus,
)
from meganeura.ops.elementwise import (
    stop_gradient as stop_gradient,
)
from meganeura.ops.elementwise import (
    subtract as subtract,
)
from meganeura.ops.elementwise import (
    swish as swish,
)
from meganeura.ops.elementwise import (
    tan as tan,
)
from meganeura.ops.elementwise import (
    tanh as tanh,
)
from meganeura.ops.elementwise import (
    tanh_shrink as tanh_shrink,
)
from meganeura.ops.elementwise import (
    threshold as threshold,
)
from meganeura.ops.elementwise import (
    true_divide as true_divide,
)
from meganeura.ops.elementwise import (
    where as where,
)
from meganeura.ops.losses import (
    binary_crossentropy as binary_crossentropy,
)
from meganeura.ops.losses import (
    categorical_crossentropy as categorical_crossentropy,
)
from meganeura.ops.losses import (
    sparse_categorical_crossentropy as sparse_categorical_crossentropy,
)
from meganeura.ops.matmul import (
    cross as cross,
)
from meganeura.ops.matmul import (
    dot as dot,
)
from meganeura.ops.matmul import (
    einsum as einsum,
)
from meganeura.ops.matmul import (
    inner as inner,
)
from meganeura.ops.matmul import (
    matmul as matmul,
)
from meganeura.ops.matmul import (
    outer as outer,
)
from meganeura.ops.matmul import (
    tensordot as tensordot,
)
from meganeura.ops.matmul import (
    vdot as vdot,
)
from meganeura.ops.movement_functions import (
    array_split as array_split,
)
from meganeura.ops.movement_functions import (
    broadcast_to as broadcast_to,
)
from meganeura.ops.movement_functions import (
    concatenate as concatenate,
)
from meganeura.ops.movement_functions import (
    expand_dims as expand_dims,
)
from meganeura.ops.movement_functions import (
    flip as flip,
)
from meganeura.ops.movement_functions import (
    moveaxis as moveaxis,
)
from meganeura.ops.movement_functions import (
    pad as pad,
)
from meganeura.ops.movement_functions import (
    ravel as ravel,
)
from meganeura.ops.movement_functions import (
    repeat as repeat,
)
from meganeura.ops.movement_functions import (
    reshape as reshape,
)
from meganeura.ops.movement_functions import (
    roll as roll,
)
from meganeura.ops.movement_functions import (
    slice as slice,
)
from meganeura.ops.movement_functions import (
    slice_update as slice_update,
)
from meganeura.ops.movement_functions import (
    split as split,
)
from meganeura.ops.movement_functions import (
    squeeze as squeeze,
)
from meganeura.ops.movement_functions import (
    stack as stack,
)
from meganeura.ops.movement_functions import (
    swapaxes as swapaxes,
)
from meganeura.ops.movement_functions import (
    take as take,
)
from meganeura.ops.movement_functions import (
    take_along_axis as take_along_axis,
)
from meganeura.ops.movement_functions import (
    tile as tile,
)
from meganeura.ops.movement_functions import (
    transpose as transpose,
)
from meganeura.ops.movement_functions import (
    unstack as unstack,
)
from meganeura.ops.operators import get_item as get_item
from meganeura.ops.pooling import (
    average_pool as average_pool,
)
from meganeura.ops.pooling import (
    max_pool as max_pool,
)
from meganeura.ops.reduction_functions import (
    all as all,
)
from meganeura.ops.reduction_functions import (
    amax as amax,
)
from meganeura.ops.reduction_functions import (
    amin as amin,
)
from meganeura.ops.reduction_functions import (
    any as any,
)
from meganeura.ops.reduction_functions import (
    argmax as argmax,
)
from meganeura.ops.reduction_functions import (
    argmin as argmin,
)
from meganeura.ops.reduction_functions import (
    average as average,
)
from meganeura.ops.reduction_functions import (
    count_nonzero as count_nonzero,
)
from meganeura.ops.reduction_functions import (
    in_top_k as in_top_k,
)
from meganeura.ops.reduction_functions import (
    log_softmax as log_softmax,
)
from meganeura.ops.reduction_functions import (
    logsumexp as logsumexp,
)
from meganeura.ops.reduction_functions import (
    max as max,
)
from meganeura.ops.reduction_functions import (
    mean as mean,
)
from meganeura.ops.reduction_functions import (
    min as min,
)
from meganeura.ops.reduction_functions import (
    moments as moments,
)
from meganeura.ops.reduction_functions import (
    norm as norm,
)
from meganeura.ops.reduction_functions import (
    normalize as normalize,
)
from meganeura.ops.reduction_functions import (
    prod as prod,
)
from meganeura.ops.reduction_functions import (
    softmax as softmax,
)
from meganeura.ops.reduction_functions import (
    std as std,
)
from meganeura.ops.reduction_functions import (
    sum as sum,
)
from meganeura.ops.reduction_functions import (
    var as var,
)
from meganeura.ops.scatter import (
    scatter as scatter,
)
from meganeura.ops.scatter import (
    scatter_update as scatter_update,
)
from meganeura.ops.scatter import (
    segment_sum as segment_sum,
)
