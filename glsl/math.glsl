// Functions of one float that keep their digits where GLSL's own promise little, on devices without float64.
//
// Every result is within a few ulps of the truth; NaN gives NaN, and infinities and zeros give what C gives.
// Subnormal numbers count as zero. The polynomials are Chebyshev interpolants, computed with 50 digits by
// mpmath's chebyfit on the interval that each comment names, and rounded to float32. `precise` stands where a
// compiler that contracts or regroups a sum would lose what the sum is for.

#define NAN uintBitsToFloat(0x7FC00000u)
#define INFINITY uintBitsToFloat(0x7F800000u)

const float SMALLEST = 1.17549435e-38;  // that is not subnormal
const float LOG2_E = 1.44269502;
const float LN2_HIGH = 0.693145752;     // 16 bits, so that its product with an exponent is exact
const float LN2_LOW = 1.42860677e-6;

// --- bits: a compiler may assume that no float is NaN, but not that no word is -----------------------------

bool is_nan(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u; }
bool is_infinite(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) == 0x7F800000u; }
bool is_negative(float x) { return floatBitsToUint(x) >= 0x80000000u; }  // so is -0

float with_sign(float magnitude, float x) {
    return uintBitsToFloat((floatBitsToUint(magnitude) & 0x7FFFFFFFu) | (floatBitsToUint(x) & 0x80000000u));
}

float power_of_two(int n) { return uintBitsToFloat(uint(n + 127) << 23); }  // -126 to 127

// Two powers of two whose product is 2ⁿ, for n from -252 to 254.
vec2 power_factors(int n) { return vec2(power_of_two(n >> 1), power_of_two(n - (n >> 1))); }

// --- pairs: a sum or product, and what its rounding lost (Dekker, Numer. Math. 18, 1971; Knuth) ------------

vec2 two_sum(float a, float b) {
    precise float sum = a + b;
    precise float part = sum - a;
    precise float lost = (a - (sum - part)) + (b - part);
    return vec2(sum, lost);
}

// Halves of 12 bits have exact products. GLSL's fma need not round only once.
vec2 two_product(float a, float b) {
    float a1 = uintBitsToFloat(floatBitsToUint(a) & 0xFFFFF000u);
    float b1 = uintBitsToFloat(floatBitsToUint(b) & 0xFFFFF000u);
    precise float a2 = a - a1, b2 = b - b1;
    precise float product = a * b;
    precise float lost = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2;
    return vec2(product, lost);
}

vec2 pair_product(vec2 a, vec2 b) {
    vec2 product = two_product(a.x, b.x);
    precise float lost = product.y + (a.x * b.y + a.y * b.x);
    return vec2(product.x, lost);
}

// --- division and roots ------------------------------------------------------------------------------------

// GLSL's division may fail where the reciprocal of the divisor would be subnormal.
float quotient(float a, float b) {
    float scale = abs(b) > 1e30 ? 5.42101086e-20 : 1.0;  // 2^-64
    precise float up = a * scale, down = b * scale;
    return up / down;
}

float math_sqrt(float x) {
    if (x < SMALLEST) return x < 0.0 ? NAN : x;
    if (is_nan(x) || is_infinite(x)) return x;
    // By 2^24 or 2^-24, so that the residual is not subnormal.
    float scale = x < 1e-10 ? 16777216.0 : x > 1e10 ? 5.96046448e-8 : 1.0;
    precise float y = x * scale * scale;
    float root = sqrt(y);
    vec2 square = two_product(root, root);
    precise float residual = (y - square.x) - square.y;
    precise float refined = root + 0.5 * residual / root;  // Newton: GLSL promises 4.5 ulps
    return refined * (x < 1e-10 ? 5.96046448e-8 : x > 1e10 ? 16777216.0 : 1.0);
}

float math_rsqrt(float x) {
    if (abs(x) < SMALLEST) return with_sign(INFINITY, x);
    if (is_nan(x)) return x;
    return x < 0.0 ? NAN : is_infinite(x) ? 0.0 : inversesqrt(x);
}

// --- exponentials ------------------------------------------------------------------------------------------

// (eʳ - 1 - r) / r² for |r| <= ln 2 / 2.
float exp_series(float r) {
    return (((0.00139262504 * r + 0.00836323295) * r + 0.0416665524) * r + 0.166665763) * r + 0.5;
}

// Two factors of e to the power x + low, where low is what the rounding of x lost. Neither is subnormal, so a
// formula that multiplies by one early and by the other last keeps its digits where the power itself has
// none.
vec2 exp_factors(float x, float low) {
    float t = clamp(x, -110.0, 100.0);  // beyond, the powers of two give 0 and infinity
    float n = roundEven(t * LOG2_E);
    precise float r = ((t - n * LN2_HIGH) - n * LN2_LOW) + low;
    float y = x < -109.0 ? 0.0 : 1.0 + (r + r * r * exp_series(r));
    vec2 powers = power_factors(int(n));
    return vec2(is_nan(x) ? x : y * powers.x, powers.y);
}

float math_exp(float x, float low) {
    vec2 factors = exp_factors(x, low);
    return factors.x * factors.y;
}

float math_exp(float x) { return math_exp(x, 0.0); }

float math_expm1(float x) {
    if (is_nan(x) || x == 0.0) return x;
    float t = clamp(x, -30.0, 100.0);
    float n = roundEven(t * LOG2_E);
    precise float r = (t - n * LN2_HIGH) - n * LN2_LOW;
    precise float y = (1.0 - power_of_two(-min(int(n), 126))) + (r + r * r * exp_series(r));
    vec2 powers = power_factors(int(n));
    return y * powers.x * powers.y;
}

float math_sigmoid(float x) {
    float e = math_exp(-abs(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

float math_tanh(float x) {
    float t = abs(x), z = t * t;
    // (tanh(t) - t) / t³ in t² for t <= 0.625
    float small = ((-0.00609671418 * z + 0.0209971797) * z - 0.0538509078) * z + 0.133327693;
    small = small * z - 0.333333284;
    float y = t < 0.625 ? t + t * z * small : 1.0 - 2.0 / (math_exp(2.0 * min(t, 20.0)) + 1.0);
    return is_nan(x) ? x : with_sign(y, x);
}

// --- logarithms --------------------------------------------------------------------------------------------

// k for which x = 2ᵏ m, with m from √½ to √2.
int binary_exponent(float x) { return int(floatBitsToUint(x) - 0x3F3504F3u) >> 23; }

// ln(1 + f) + k ln 2, for 1 + f from √½ to √2.
float log_series(float f, float k) {
    // (ln(1 + f) - f + f²/2) / f³
    float y = (((0.0697161183 * f - 0.114797339) * f + 0.116854198) * f - 0.124256872) * f + 0.142490581;
    y = (((y * f - 0.166678026) * f + 0.200007156) * f - 0.24999997) * f + 0.333333313;
    precise float low = k * LN2_LOW - f * f * (0.5 - f * y);
    precise float sum = k * LN2_HIGH + (f + low);
    return sum;
}

// The logarithm where it is not finite: of 0, of negative numbers, of infinity and NaN.
float log_of_special(float x) {
    return is_nan(x) || x >= 1.0 ? x : x <= -SMALLEST ? NAN : -INFINITY;
}

bool is_normal_positive(float x) { return floatBitsToUint(x) - 0x00800000u < 0x7F000000u; }

float math_log(float x) {
    if (!is_normal_positive(x)) return log_of_special(x);
    int k = binary_exponent(x);
    return log_series(uintBitsToFloat(floatBitsToUint(x) - uint(k << 23)) - 1.0, float(k));
}

float math_log1p(float x) {
    precise float u = 1.0 + x;
    if (!is_normal_positive(u)) return log_of_special(u);
    int k = binary_exponent(u);
    if (k == 0) return x == 0.0 ? x : log_series(x, 0.0);
    precise float lost = k > 0 ? 1.0 - (u - x) : x - (u - 1.0);
    precise float f = uintBitsToFloat(floatBitsToUint(u) - uint(k << 23)) - 1.0;
    return log_series(k < 100 ? f + lost * power_of_two(-k) : f, float(k));
}

// ln x to 40 bits as a sum of two, for normal x > 0: with s = (m - 1) / (m + 1), ln m = 2 artanh s.
vec2 log_pair(float x) {
    int k = binary_exponent(x);
    float m = uintBitsToFloat(floatBitsToUint(x) - uint(k << 23));
    precise float up = m - 1.0, down = m + 1.0, down_low = m - (down - 1.0);
    precise float s = up / down;
    vec2 back = two_product(s, down);
    precise float s_low = (((up - back.x) - back.y) - s * down_low) / down;
    float z = s * s;
    // (2 artanh(s) / s - 2) / s² in s² for s <= 0.1716
    float series = ((0.233304679 * z + 0.285508215) * z + 0.400001228) * z + 0.666666687;
    precise float low = float(k) * LN2_LOW + (s * z * series + 2.0 * s_low);
    vec2 sum = two_sum(float(k) * LN2_HIGH, 2.0 * s);
    precise float rest = sum.y + low;
    return two_sum(sum.x, rest);
}

// --- powers ------------------------------------------------------------------------------------------------

// x to the power y, for x >= 0 and y not zero.
float positive_power(float x, float y) {
    if (x == 1.0) return 1.0;
    if (x < SMALLEST || is_infinite(x)) return (x < 1.0) == (y > 0.0) ? 0.0 : INFINITY;
    vec2 logarithm = log_pair(x);
    if (abs(logarithm.x * y) > 200.0) return math_exp(logarithm.x * y);
    vec2 exponent = pair_product(logarithm, vec2(y, 0.0));
    return math_exp(exponent.x, exponent.y);
}

float math_pow(float x, float y) {
    if (x == 1.0 || y == 0.0) return 1.0;
    if (is_nan(x) || is_nan(y)) return NAN;
    float magnitude = positive_power(abs(x), y);
    if (!is_negative(x)) return magnitude;
    if (floor(y) != y) return abs(x) < SMALLEST || is_infinite(x) ? magnitude : NAN;
    bool odd = abs(y) < 16777216.0 && floor(y * 0.5) != y * 0.5;
    return odd ? -magnitude : magnitude;
}

// --- trigonometry ------------------------------------------------------------------------------------------

// The first 224 bits of 2/π, behind a word of zeros.
const uint TWO_OVER_PI[8] = uint[8](
    0u, 0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u, 0xF534DDC0u, 0xDB629599u, 0x3C439041u, 0xFE5163ABu
);

// Payne and Hanek (SIGNUM Newsletter 18, 1983): of 2/π only those bits matter that, times x, are worth less
// than four quarter turns and enough to leave 24 good bits. Integers hold them exactly. For |x| >= 2⁸.
float reduced_huge(float x, out uint quarters) {
    uint bits = floatBitsToUint(x), mantissa = (bits & 0x7FFFFFu) | 0x800000u;
    uint skip = ((bits >> 23) & 0xFFu) - 120u;  // bits of the table in front of the window
    uint first = skip >> 5, shift = skip & 31u;
    uint window[3];
    for (uint w = 0u; w < 3u; ++w)
        window[w] = (TWO_OVER_PI[first + w] << shift) | ((TWO_OVER_PI[first + w + 1u] >> 1) >> (31u - shift));
    uint high, middle, middle_high, low, carry;
    umulExtended(mantissa, window[2], middle, low);
    umulExtended(mantissa, window[1], middle_high, high);
    middle = uaddCarry(middle, high, carry);
    high = mantissa * window[0] + middle_high + carry;
    // What is left of x, in quarter turns, is high.middle.low · 2^-94.
    quarters = (high + 0x20000000u) >> 30;
    high -= quarters << 30;
    bool negative = high >= 0x80000000u;
    if (negative) {
        high = ~high + uint(middle == 0u);
        middle = ~middle + 1u;
    }
    float turn = float(high) * 9.31322575e-10 + float(middle) * 2.16840434e-19;  // 2^-30, 2^-62
    float rest = 1.57079637 * turn;
    return negative ? -rest : rest;
}

// x minus the nearest multiple of π/2, and that multiple, modulo 4.
float reduced(float x, out uint quarters) {
    if (abs(x) < 400.0) {  // Cody and Waite: π/2 in parts of 16 bits, whose products with n are exact
        float n = roundEven(x * 0.636619747);
        quarters = uint(int(n));
        precise float rest = ((x - n * 1.57077026) - n * 2.60630623e-5) - n * 6.07710063e-11;
        return rest;
    }
    float rest = reduced_huge(abs(x), quarters);
    if (x < 0.0) {
        quarters = 0u - quarters;
        rest = -rest;
    }
    return rest;
}

// For |r| <= π/4: (sin(r)/r - 1) / r² and (cos(r) - 1 + r²/2) / r⁴ in r².
float sin_series(float r) {
    float z = r * r;
    float y = ((2.72496209e-6 * z - 0.000198400841) * z + 0.00833333191) * z - 0.166666672;
    return r + r * z * y;
}

float cos_series(float r) {
    float z = r * r;
    float y = ((-2.73007032e-7 * z + 2.48005981e-5) * z - 0.00138888881) * z + 0.0416666679;
    return 1.0 - (0.5 * z - z * z * y);
}

float math_sin(float x) {
    if (is_infinite(x) || is_nan(x)) return NAN;
    uint quarters;
    float r = reduced(x, quarters);
    float y = (quarters & 1u) == 0u ? sin_series(r) : cos_series(r);
    return x == 0.0 ? x : (quarters & 2u) == 0u ? y : -y;
}

float math_cos(float x) {
    if (is_infinite(x) || is_nan(x)) return NAN;
    uint quarters;
    float r = reduced(x, quarters);
    float y = (quarters & 1u) == 0u ? cos_series(r) : sin_series(r);
    return ((quarters + 1u) & 2u) == 0u ? y : -y;
}

float math_tan(float x) {
    if (is_infinite(x) || is_nan(x)) return NAN;
    uint quarters;
    float r = reduced(x, quarters);
    float s = sin_series(r), c = cos_series(r);
    return x == 0.0 ? x : (quarters & 1u) == 0u ? s / c : -c / s;
}

float math_atan(float x) {
    float t = abs(x), base = 0.0, base_low = 0.0;
    if (t > 2.41421366) {  // tan(3π/8)
        t = -1.0 / t;
        base = 1.57079637, base_low = -4.37113883e-8;
    } else if (t > 0.414213568) {  // tan(π/8)
        t = (t - 1.0) / (t + 1.0);
        base = 0.785398185, base_low = -2.18556941e-8;
    }
    float z = t * t;
    // (atan(t)/t - 1) / t² in t² for |t| <= tan(π/8)
    float series = ((-0.0645184144 * z + 0.107437052) * z - 0.142639533) * z + 0.199995399;
    series = series * z - 0.333333313;
    precise float y = base + (t + (t * z * series + base_low));
    return is_nan(x) ? x : with_sign(y, x);
}

// --- the normal distribution -------------------------------------------------------------------------------

// The share of a normal distribution above a >= 0: exp(-a²/2) · C(t) / (a + 3), with t = (a - 3) / (a + 3),
// which removes the singularity at infinity, as Shepherd and Laframboise do (Math. Comp. 36, 1981). C on 0 <=
// a <= 15, where the tail underflows; two factors, as of exp.
vec2 normal_tail(float a) {
    a = min(a, 15.0);
    float q = 1.0 / (a + 3.0), t = (a - 3.0) * q;
    float y = ((5.54918734e-5 * t + 0.000133323949) * t - 0.000244709314) * t - 0.00103447656;
    y = ((y * t + 0.00102415727) * t + 0.00696992036) * t - 0.0104622887;
    y = (((y * t - 0.0472627617) * t + 0.230017677) * t - 0.509332001) * t + 0.729083717;
    vec2 square = two_product(a, a);  // rounding the exponent would cost a² ulps of the result
    vec2 factors = exp_factors(-0.5 * square.x, -0.5 * square.y);
    return vec2(factors.x * (y * q), factors.y);
}

float math_erf(float x) {
    float t = abs(x), z = t * t;
    // erf(t)/t - 1 in t² for t <= 1
    float small = ((7.87587487e-5 * z - 0.00080168643) * z + 0.00518908724) * z - 0.0268542115;
    small = ((small * z + 0.112835944) * z - 0.37612626) * z + 0.128379166;
    vec2 tail = normal_tail(t * 1.41421354);
    float y = t < 1.0 ? t + t * small : 1.0 - 2.0 * (tail.x * tail.y);
    return is_nan(x) ? x : with_sign(y, x);
}

// --- remainders --------------------------------------------------------------------------------------------

// a modulo b, with the sign of b as in Python; exact, but for the rounding of a + b where b is the larger. Long
// division of the significands, eight bits at a time.
float math_remainder(float a, float b) {
    float x = abs(a), y = abs(b);
    bool alike = is_negative(a) == is_negative(b);
    if (is_nan(a) || is_nan(b) || is_infinite(a) || y < SMALLEST) return NAN;
    if (x < y) return x < SMALLEST ? with_sign(0.0, b) : alike ? a : a + b;
    uint top = floatBitsToUint(x), bottom = floatBitsToUint(y), divisor = (bottom & 0x7FFFFFu) | 0x800000u;
    uint rest = ((top & 0x7FFFFFu) | 0x800000u) % divisor;
    for (uint places = (top >> 23) - (bottom >> 23); places > 0u;) {
        uint step = min(places, 8u);
        rest = (rest << step) % divisor;
        places -= step;
    }
    if (rest != 0u && !alike) rest = divisor - rest;
    precise float share = float(rest) * 1.1920929e-7;  // 2^-23
    return with_sign(share * uintBitsToFloat(bottom & 0x7F800000u), b);
}
