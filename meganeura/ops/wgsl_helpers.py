"""WGSL functions that the expressions of pointwise operations call, by name.

The code writer includes those that a kernel mentions, and what they mention in turn. They exist
where WGSL's own functions overflow, lose accuracy near zero, or leave NaN to the driver.
"""

from meganeura.ops.wgsl_trigonometry import TRIGONOMETRY

HELPERS: dict[str, str] = {
    **TRIGONOMETRY,
    # A call keeps the compiler from evaluating the constant, which WGSL forbids for inf and NaN.
    "mg_from_bits": "fn mg_from_bits(bits: u32) -> f32 { return bitcast<f32>(bits); }",
    "mg_isnan": "fn mg_isnan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }",
    "mg_isfinite": (
        "fn mg_isfinite(x: f32) -> bool { return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u; }"
    ),
    # What half precision cannot hold is infinite, whichever way the driver rounds.
    "mg_half": (
        "fn mg_half(x: f32) -> f16 {"
        " return f16(select(x, x * mg_from_bits(0x7f000000u), abs(x) >= 65520.0)); }"
    ),
    "mg_rounded": "fn mg_rounded(x: f32) -> f32 { return f32(mg_half(x)); }",
    "mg_max": (
        "fn mg_max(a: f32, b: f32) -> f32 { return select(select(b, a, a > b), a, mg_isnan(a)); }"
    ),
    "mg_min": (
        "fn mg_min(a: f32, b: f32) -> f32 { return select(select(b, a, a < b), a, mg_isnan(a)); }"
    ),
    # Written with max, a driver may return 0 for NaN, and hide that a model has diverged.
    "mg_relu": "fn mg_relu(x: f32) -> f32 { return select(max(x, 0.0), x, mg_isnan(x)); }",
    "mg_sign": (
        "fn mg_sign(x: f32) -> f32 { return select(select(select(0.0, 1.0, x > 0.0), -1.0, x < 0.0),"
        " x, mg_isnan(x)); }"
    ),
    "mg_sigmoid": """fn mg_sigmoid(x: f32) -> f32 {
  let z = exp(-abs(x));
  return select(z, 1.0, x >= 0.0) / (1.0 + z);
}""",
    "mg_silu": "fn mg_silu(x: f32) -> f32 { return x * mg_sigmoid(x); }",
    # Taylor's series near zero, where 1 - exp cancels.
    "mg_tanh": """fn mg_tanh(x: f32) -> f32 {
  let a = abs(x);
  let s = x * x;
  if (a < 0.4) {
    return x * (1.0 + s * (-0.33333333 + s * (0.13333333 + s * (-0.053968254 + s * (0.021869488
      + s * (-0.0088632355 + s * 0.0035921280))))));
  }
  let z = exp(-2.0 * a);
  let t = (1.0 - z) / (1.0 + z);
  return select(t, -t, x < 0.0);
}""",
    "mg_expm1": """fn mg_expm1(x: f32) -> f32 {
  if (abs(x) < 0.5) {
    return x * (1.0 + x * (0.5 + x * (0.16666667 + x * (0.041666667 + x * (0.0083333333
      + x * (0.0013888889 + x * (0.00019841270 + x * 0.000024801587)))))));
  }
  return exp(x) - 1.0;
}""",
    # log(1 + x) = 2 artanh(x / (2 + x)).
    "mg_log1p": """fn mg_log1p(x: f32) -> f32 {
  if (abs(x) < 0.5) {
    let r = x / (2.0 + x);
    let s = r * r;
    return 2.0 * r * (1.0 + s * (0.33333333 + s * (0.2 + s * (0.14285714 + s * (0.11111111
      + s * (0.090909091 + s * 0.076923077))))));
  }
  return log(1.0 + x);
}""",
    "mg_softplus": (
        "fn mg_softplus(x: f32) -> f32 { return select(0.0, x, x > 0.0 || mg_isnan(x))"
        " + mg_log1p(exp(-abs(x))); }"
    ),
    "mg_sinh": (
        "fn mg_sinh(x: f32) -> f32 { let e = mg_expm1(abs(x));"
        " let v = 0.5 * (e + e / (e + 1.0)); let w = select(v, 0.5 * exp(0.5 * abs(x)) * exp(0.5 * abs(x)),"
        " abs(x) > 20.0); return select(w, -w, x < 0.0); }"
    ),
    "mg_cosh": (
        "fn mg_cosh(x: f32) -> f32 { let h = exp(0.5 * abs(x)); return 0.5 * h * h + 0.5 / h / h; }"
    ),
    # Taylor's series below 1; above, a Chebyshev fit of erfc with a relative error of 1.2e-7
    # (Press et al., Numerical Recipes, erfcc).
    "mg_erf": """fn mg_erf(x: f32) -> f32 {
  let a = abs(x);
  if (a < 1.0) {
    let s = x * x;
    return x * (1.1283792 + s * (-0.37612639 + s * (0.11283792 + s * (-0.026866170
      + s * (0.0052239776 + s * (-0.00085483270 + s * (0.00012055333 + s * (-0.000014925651
      + s * (0.0000016462114 + s * -0.00000016365846)))))))));
  }
  let t = 1.0 / (1.0 + 0.5 * a);
  let c = t * exp(-x * x - 1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418
    + t * (-0.18628806 + t * (0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223
    + t * 0.17087277)))))))));
  return select(1.0 - c, c - 1.0, x < 0.0);
}""",
    "mg_gelu": "fn mg_gelu(x: f32) -> f32 { return 0.5 * x * (1.0 + mg_erf(x * 0.70710678)); }",
    "mg_gelu_tanh": (
        "fn mg_gelu_tanh(x: f32) -> f32 { return 0.5 * x"
        " * (1.0 + mg_tanh(0.79788456 * (x + 0.044715 * x * x * x))); }"
    ),
    # Negative bases have a power where the exponent is whole; WGSL leaves them undefined. Small
    # whole exponents are products, which are exact where exp2(b log2(a)) is not.
    "mg_pow": """fn mg_pow(a: f32, b: f32) -> f32 {
  if (b == 0.0 || a == 1.0) { return 1.0; }
  if (mg_isnan(a) || mg_isnan(b)) { return mg_from_bits(0x7fc00000u); }
  let size = abs(a);
  let whole = floor(b) == b;
  let half = 0.5 * b;
  let odd = whole && floor(half) != half;
  let negative = (bitcast<u32>(a) & 0x80000000u) != 0u;
  var r = 1.0;
  if (size == 0.0) {
    r = select(0.0, mg_from_bits(0x7f800000u), b < 0.0);
  } else if (whole && abs(b) <= 64.0) {
    var p = size;
    for (var n = u32(abs(b)); n != 0u; n >>= 1u) {
      if ((n & 1u) != 0u) { r *= p; }
      p *= p;
    }
    if (b < 0.0) { r = select(1.0 / r, 0.0, !mg_isfinite(r)); }
  } else if (size != 1.0) {
    r = pow(size, b);
  }
  if (!negative || size == 0.0 && !odd) { return r; }
  return select(select(r, -r, odd), mg_from_bits(0x7fc00000u), !whole && mg_isfinite(a) && size != 0.0);
}""",
    "mg_int_pow": """fn mg_int_pow(a: i32, b: i32) -> i32 {
  if (b < 0) { return select(select(0, select(1, -1, (b & 1) != 0), a == -1), 1, a == 1); }
  return bitcast<i32>(mg_uint_pow(bitcast<u32>(a), u32(b)));
}""",
    "mg_uint_pow": """fn mg_uint_pow(a: u32, b: u32) -> u32 {
  var r = 1u;
  var p = a;
  for (var n = b; n != 0u; n >>= 1u) {
    if ((n & 1u) != 0u) { r *= p; }
    p *= p;
  }
  return r;
}""",
    # The remainder with the dividend's sign, exact whatever the quotient: long division of the
    # significands, one bit of the quotient at a time.
    "mg_remainder": """fn mg_remainder(a: f32, b: f32) -> f32 {
  let ua = bitcast<u32>(a) & 0x7fffffffu;
  let ub = bitcast<u32>(b) & 0x7fffffffu;
  if (ua >= 0x7f800000u || ub > 0x7f800000u || ub < 0x800000u) { return mg_from_bits(0x7fc00000u); }
  if (ua < ub) { return a; }
  let mb = (ub & 0x7fffffu) | 0x800000u;
  var m = (ua & 0x7fffffu) | 0x800000u;
  for (var e = ub >> 23u; e < (ua >> 23u); e++) {
    if (m >= mb) { m -= mb; }
    m <<= 1u;
  }
  if (m >= mb) { m -= mb; }
  let r = ldexp(f32(m), i32(ub >> 23u) - 150);
  return select(r, -r, a < 0.0);
}""",
    "mg_float_mod": """fn mg_float_mod(a: f32, b: f32) -> f32 {
  let r = mg_remainder(a, b);
  return select(r, r + b, r != 0.0 && (r < 0.0) != (b < 0.0));
}""",
    # Through the exact remainder: the floor of a rounded quotient can be one off.
    "mg_float_div": """fn mg_float_div(a: f32, b: f32) -> f32 {
  if (b == 0.0) { return a / b; }
  let r = mg_remainder(a, b);
  let q = round((a - r) / b);
  return select(q, q - 1.0, r != 0.0 && (r < 0.0) != (b < 0.0));
}""",
    "mg_int_div": """fn mg_int_div(a: i32, b: i32) -> i32 {
  if (b == 0) { return 0; }
  if (b == -1) { return -a; }
  let q = a / b;
  return select(q, q - 1, q * b != a && (a < 0) != (b < 0));
}""",
    "mg_int_mod": """fn mg_int_mod(a: i32, b: i32) -> i32 {
  if (b == 0 || b == -1) { return 0; }
  let r = a - a / b * b; // Vulkan leaves the remainder of negative numbers to the driver
  return select(r, r + b, r != 0 && (r < 0) != (b < 0));
}""",
    "mg_uint_div": "fn mg_uint_div(a: u32, b: u32) -> u32 { return select(a / max(b, 1u), 0u, b == 0u); }",
    "mg_uint_mod": "fn mg_uint_mod(a: u32, b: u32) -> u32 { return select(a % max(b, 1u), 0u, b == 0u); }",
    # The high word of a 32x32-bit product: WGSL has no 64-bit integers.
    "mg_mulhi": """fn mg_mulhi(a: u32, b: u32) -> u32 {
  let a0 = a & 0xffffu; let a1 = a >> 16u; let b0 = b & 0xffffu; let b1 = b >> 16u;
  let low = a0 * b0;
  let m1 = a1 * b0 + (low >> 16u);
  let m2 = a0 * b1 + (m1 & 0xffffu);
  return a1 * b1 + (m1 >> 16u) + (m2 >> 16u);
}""",
    # Philox 4x32-10 (Salmon et al., SC 2011): word `index % 4` of the block `index / 4`.
    "mg_philox": """fn mg_philox(key0: u32, key1: u32, index: u32) -> u32 {
  var c = vec4<u32>(index >> 2u, 0u, 0u, 0u);
  var k = vec2<u32>(key0, key1);
  for (var round = 0u; round < 10u; round++) {
    let h0 = mg_mulhi(0xD2511F53u, c.x); let l0 = 0xD2511F53u * c.x;
    let h1 = mg_mulhi(0xCD9E8D57u, c.z); let l1 = 0xCD9E8D57u * c.z;
    c = vec4<u32>(h1 ^ c.y ^ k.x, l1, h0 ^ c.w ^ k.y, l0);
    k += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
  }
  return c[index & 3u];
}""",
}
