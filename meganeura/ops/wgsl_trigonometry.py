"""Trigonometric functions in WGSL, accurate to a few units in the last place for every argument.

WGSL asks for an absolute error of 2^-11 only, and only between -pi and pi; positional encodings
need angles of thousands of radians. The polynomials are least-squares fits, reweighted towards
the smallest largest error; each is good to 2e-8 or better before rounding.
"""

TRIGONOMETRY: dict[str, str] = {
    # The angle less the nearest multiple of pi/2, and that multiple modulo 4. Up to 12,000 radians
    # pi/2 is subtracted in parts so short that their products are exact (Cody and Waite); beyond,
    # the 24 bits of the significand meet the 96 bits of 2/pi that matter (Payne and Hanek).
    "mg_quarter": """fn mg_quarter(x: f32) -> vec2<f32> {
  let bits = bitcast<u32>(x) & 0x7fffffffu;
  if (bits < 0x463b8000u) {
    let k = round(x * 0.63661977);
    let r = ((x - k * 1.5703125) - k * 0.000483751297) - k * 0.0000000754953362;
    return vec2<f32>(r - k * 2.563344068e-12, f32(i32(k) & 3));
  }
  if (bits >= 0x7f800000u) { return vec2<f32>(mg_from_bits(0x7fc00000u), 0.0); }
  var words = array<u32, 8>(0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u,
    0x3c439041u, 0xfe5163abu);
  let start = (bits >> 23u) - 120u;
  let word = start >> 5u;
  let shift = start & 31u;
  let back = (32u - shift) & 31u;
  let keep = select(0xffffffffu, 0u, shift == 0u);
  let a = (words[word] << shift) | ((words[word + 1u] >> back) & keep);
  let b = (words[word + 1u] << shift) | ((words[word + 2u] >> back) & keep);
  let c = (words[word + 2u] << shift) | ((words[word + 3u] >> back) & keep);
  let m = (bits & 0x7fffffu) | 0x800000u;
  let low = m * c;
  let carry = mg_mulhi(m, c);
  let middle = m * b + carry;
  let top = m * a + mg_mulhi(m, b) + select(0u, 1u, middle < carry);
  let fraction = (top << 2u) | (middle >> 30u);
  let rest = (middle << 2u) | (low >> 30u);
  let quadrant = ((top >> 30u) + (fraction >> 31u)) & 3u;
  let r = (f32(bitcast<i32>(fraction)) + f32(rest) * 2.3283064e-10) * 3.6572952e-10;
  if (x < 0.0) { return vec2<f32>(-r, f32((4u - quadrant) & 3u)); }
  return vec2<f32>(r, f32(quadrant));
}""",
    "mg_sin_near": (
        "fn mg_sin_near(r: f32) -> f32 { let s = r * r; return r + r * s * (-0.166666666"
        " + s * (0.00833332938 + s * (-0.000198393341 + s * 0.00000271830413))); }"
    ),
    "mg_cos_near": (
        "fn mg_cos_near(r: f32) -> f32 { let s = r * r; return 1.0 - 0.5 * s + s * s * (0.0416666469"
        " + s * (-0.00138873669 + s * 0.0000244383777)); }"
    ),
    "mg_sin": """fn mg_sin(x: f32) -> f32 {
  let q = mg_quarter(x);
  let n = u32(q.y);
  let v = select(mg_sin_near(q.x), mg_cos_near(q.x), (n & 1u) != 0u);
  return select(v, -v, n >= 2u);
}""",
    "mg_cos": """fn mg_cos(x: f32) -> f32 {
  let q = mg_quarter(x);
  let n = u32(q.y);
  let v = select(mg_cos_near(q.x), mg_sin_near(q.x), (n & 1u) != 0u);
  return select(v, -v, n == 1u || n == 2u);
}""",
    "mg_tan": """fn mg_tan(x: f32) -> f32 {
  let q = mg_quarter(x);
  let s = mg_sin_near(q.x);
  let c = mg_cos_near(q.x);
  let odd = (u32(q.y) & 1u) != 0u;
  return select(s, -c, odd) / select(c, s, odd);
}""",
    "mg_asin_near": (
        "fn mg_asin_near(x: f32) -> f32 { let s = x * x; return x + x * s * (0.166667539"
        " + s * (0.0749524178 + s * (0.0454770964 + s * (0.0241476148 + s * 0.0422185417)))); }"
    ),
    "mg_asin": """fn mg_asin(x: f32) -> f32 {
  let a = abs(x);
  if (a <= 0.5) { return mg_asin_near(x); }
  if (!(a <= 1.0)) { return mg_from_bits(0x7fc00000u); }
  let v = 1.57079633 - 2.0 * mg_asin_near(sqrt(0.5 - 0.5 * a));
  return select(v, -v, x < 0.0);
}""",
    "mg_acos": """fn mg_acos(x: f32) -> f32 {
  let a = abs(x);
  if (a <= 0.5) { return 1.57079633 - mg_asin_near(x); }
  if (!(a <= 1.0)) { return mg_from_bits(0x7fc00000u); }
  let v = 2.0 * mg_asin_near(sqrt(0.5 - 0.5 * a));
  return select(v, 3.14159265 - v, x < 0.0);
}""",
    # tan(pi/8) and tan(3 pi/8) part the ranges, so that the polynomial sees |z| < 0.4143.
    "mg_atan": """fn mg_atan(x: f32) -> f32 {
  let a = abs(x);
  var z = a;
  var base = 0.0;
  if (a > 2.41421356) {
    z = -1.0 / a;
    base = 1.57079633;
  } else if (a > 0.414213562) {
    z = (a - 1.0) / (a + 1.0);
    base = 0.785398163;
  }
  if (a > 1e30) { z = 0.0; }
  let s = z * z;
  let v = base + (z + z * s * (-0.333333154 + s * (0.19998484 + s * (-0.142437383
    + s * (0.105951368 + s * -0.0608114899)))));
  return select(v, -v, x < 0.0);
}""",
    "mg_atan2": """fn mg_atan2(y: f32, x: f32) -> f32 {
  if (mg_isnan(x) || mg_isnan(y)) { return mg_from_bits(0x7fc00000u); }
  let high = max(abs(x), abs(y));
  let low = min(abs(x), abs(y));
  var ratio = 0.0;
  if (low > 0.0) {
    if (!mg_isfinite(low)) {
      ratio = 1.0;
    } else if (mg_isfinite(high)) {
      let scale = select(select(1.0, 1e-20, high > 1e18), 1e18, high < 1e-18);
      ratio = (low * scale) / (high * scale);
    }
  }
  var v = mg_atan(ratio);
  if (abs(y) > abs(x)) { v = 1.57079633 - v; }
  if ((bitcast<u32>(x) & 0x80000000u) != 0u) { v = 3.14159265 - v; }
  return select(v, -v, (bitcast<u32>(y) & 0x80000000u) != 0u);
}""",
}
