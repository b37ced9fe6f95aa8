// What each row of the families elementwise and cast is on the device: `op_<name>`, spelled as in the table.
//
// A variant is compiled for one dtype. It defines T (float, int for int32, uint for uint8 and bool), FLOATING
// or not, ONES (the word of T whose bits are all set), and refuse(), which tells the host of input that has
// no result. Results of uint8 are reduced modulo 256 by the template, and any word but 0 becomes true.
// Parameters come after the inputs. Functions may assume nothing of NaN but what a test of bits says.
#include "math.glsl"

// --- any dtype ---------------------------------------------------------------------------------------------

bool is_nan(int a) { return false; }
bool is_nan(uint a) { return false; }
bool is_infinite(int a) { return false; }
bool is_infinite(uint a) { return false; }

T op_add(T a, T b) { return a + b; }
T op_sub(T a, T b) { return a - b; }
T op_mul(T a, T b) { return a * b; }
T op_square(T a) { return a * a; }
T op_neg(T a) { return -a; }
T op_sign(T a) { return is_nan(a) ? a : T(a > T(0)) - T(a < T(0)); }
T op_copy(T a) { return a; }
T op_cast(T a) { return a; }  // the template converts what it stores

bool op_eq(T a, T b) { return a == b; }
bool op_ne(T a, T b) { return a != b; }
bool op_lt(T a, T b) { return a < b; }
bool op_le(T a, T b) { return a <= b; }
bool op_gt(T a, T b) { return a > b; }
bool op_ge(T a, T b) { return a >= b; }
bool op_isnan(T a) { return is_nan(a); }
bool op_isinf(T a) { return is_infinite(a); }
bool op_isfinite(T a) { return !is_nan(a) && !is_infinite(a); }

T op_where(bool c, T a, T b) { return c ? a : b; }
T op_maximum(T a, T b) { return is_nan(a) ? a : is_nan(b) ? b : max(a, b); }
T op_minimum(T a, T b) { return is_nan(a) ? a : is_nan(b) ? b : min(a, b); }
T op_clamp(T a, T low, T high) { return op_minimum(op_maximum(a, low), high); }
T op_relu(T a) { return op_maximum(a, T(0)); }
T op_relu_input(T g, T a) { return !is_nan(a) && a <= T(0) ? T(0) : g; }

#if FLOATING
// --- floats ------------------------------------------------------------------------------------------------

float op_div(float a, float b) { return quotient(a, b); }
float op_pow(float a, float b) { return math_pow(a, b); }
float op_reciprocal(float a) { return quotient(1.0, a); }
float op_abs(float a) { return abs(a); }

float op_remainder(float a, float b) { return math_remainder(a, b); }

float op_floor_divide(float a, float b) {
    if (b == 0.0) return a / b;
    if (is_infinite(quotient(a, b))) return is_infinite(a) ? NAN : quotient(a, b);
    bool alike = is_negative(a) == is_negative(b);
    if (abs(a) < abs(b)) return alike ? 0.0 : a == 0.0 ? -0.0 : -1.0;
    // By 2^24 or 2^-24, so that the remainder is not subnormal, and does not carry a past the largest float.
    float scale = abs(b) < 1e-30 ? 16777216.0 : abs(a) > 1e30 ? 5.96046448e-8 : 1.0;
    precise float up = a * scale, down = b * scale;
    precise float whole = quotient(up - math_remainder(up, down), down);
    return round(whole);
}

float op_floor(float a) { return floor(a); }
float op_ceil(float a) { return ceil(a); }
float op_trunc(float a) { return trunc(a); }
float op_round(float a) { return roundEven(a); }

float op_exp(float a) { return math_exp(a); }
float op_expm1(float a) { return math_expm1(a); }
float op_log(float a) { return math_log(a); }
float op_log1p(float a) { return math_log1p(a); }
float op_sqrt(float a) { return math_sqrt(a); }
float op_rsqrt(float a) { return math_rsqrt(a); }
float op_sin(float a) { return math_sin(a); }
float op_cos(float a) { return math_cos(a); }
float op_tan(float a) { return math_tan(a); }
float op_atan(float a) { return math_atan(a); }
float op_tanh(float a) { return math_tanh(a); }
float op_erf(float a) { return math_erf(a); }
float op_sigmoid(float a) { return math_sigmoid(a); }
float op_bce_logits(float x, float t) {
    precise float apart = (x > 0.0 ? 1.0 : 0.0) - t;
    return x * apart + math_log1p(math_exp(-abs(x)));
}
float op_bce_slope(float x, float t) {
    float small = math_sigmoid(-abs(x));
    precise float apart = 1.0 - t;
    return x > 0.0 ? apart - small : small - t;
}

float op_addcmul(float a, float b, float c) { return a + b * c; }
float op_lerp(float a, float b, float weight) { return a * (1.0 - weight) + b * weight; }
float op_leaky_relu(float a, float slope) { return a > 0.0 ? a : a * slope; }
float op_elu(float a, float alpha) { return a > 0.0 ? a : alpha * math_expm1(a); }
float op_hardsigmoid(float a) { return is_nan(a) ? a : clamp(a + 3.0, 0.0, 6.0) / 6.0; }
float op_hardswish(float a) { return a * op_hardsigmoid(a); }

float op_silu(float a) {
    vec2 e = exp_factors(-abs(a), 0.0);
    float below = 1.0 + e.x * e.y;
    return a < 0.0 ? a * e.x / below * e.y : a / below;
}

float op_swiglu(float a, float b) { return op_silu(a) * b; }

// g s(1 + a(1 - s)) with s = sigmoid(a).
float op_silu_input(float g, float a) {
    vec2 e = exp_factors(-abs(a), 0.0);
    float whole = e.x * e.y, below = 1.0 + whole;
    if (is_infinite(a)) return a > 0.0 ? g : is_nan(g) || is_infinite(g) ? NAN : 0.0;  // g · 0
    return a < 0.0 ? g * (e.x / below * (1.0 + a / below) * e.y) : g * ((1.0 + a * (whole / below)) / below);
}

float op_gelu(float a) {
    vec2 tail = normal_tail(abs(a));
    return a < 0.0 ? a * tail.x * tail.y : a * (1.0 - tail.x * tail.y);
}

// a / (1 + exp(-2c(a + 0.044715 a³))) with c = √(2/π). The exponent reaches hundreds, so it is a pair.
float op_gelu_tanh(float a) {
    float t = min(abs(a), 60.0);
    vec2 cubic = pair_product(vec2(0.0713548139, 2.39883247e-9), two_product(t, t));  // 2c · 0.044715
    vec2 factor = two_sum(1.59576917, cubic.x);  // 2c
    precise float low = factor.y + (cubic.y - 4.53406805e-8);
    vec2 exponent = pair_product(vec2(t, 0.0), vec2(factor.x, low));
    vec2 e = exp_factors(-exponent.x, -exponent.y);
    float below = 1.0 + e.x * e.y;
    return a < 0.0 ? a * e.x / below * e.y : a / below;
}

float op_softplus(float a, float beta, float threshold) {
    vec2 x = two_product(a, beta);
    float low = abs(x.x) < 200.0 ? x.y : 0.0;
    if (x.x > threshold || (x.x == threshold && low > 0.0)) return a;
    float soft = math_log1p(x.x < 0.0 ? math_exp(x.x, low) : math_exp(-x.x, -low)) / beta;
    return x.x < 0.0 ? soft : a + soft;
}

// tanh(ln(1 + e)) = e(e + 2) / (e(e + 2) + 2).
float op_mish(float a) {
    vec2 e = exp_factors(min(a, 30.0), 0.0);
    float n = e.x * e.y + 2.0;
    return a * (e.x * n / (e.x * e.y * n + 2.0)) * e.y;
}

#else
// --- integers and bool -------------------------------------------------------------------------------------

T op_abs(T a) { return a < T(0) ? -a : a; }
T op_floor(T a) { return a; }
T op_ceil(T a) { return a; }
T op_trunc(T a) { return a; }
T op_round(T a) { return a; }

uint floored(uint a, uint b) { return a / b; }

int floored(int a, int b) {
    if (b == -1) return -a;  // the smallest int has no opposite, and a CPU's division would trap
    int whole = a / b;
    return whole - int(a != whole * b && (a < 0) != (b < 0));
}

T op_floor_divide(T a, T b) {
    if (b == T(0)) {
        refuse();
        return T(0);
    }
    return floored(a, b);
}

T op_remainder(T a, T b) { return a - op_floor_divide(a, b) * b; }

T op_pow(T a, T b) {
    if (b < T(0)) {
        refuse();
        return T(0);
    }
    T power = T(1);
    for (; b > T(0); b >>= 1) {
        if ((b & T(1)) != T(0)) power *= a;
        a *= a;
    }
    return power;
}

bool op_logical_and(T a, T b) { return a != T(0) && b != T(0); }
bool op_logical_or(T a, T b) { return a != T(0) || b != T(0); }
bool op_logical_xor(T a, T b) { return (a != T(0)) != (b != T(0)); }
bool op_logical_not(T a) { return a == T(0); }
T op_bitwise_and(T a, T b) { return a & b; }
T op_bitwise_or(T a, T b) { return a | b; }
T op_bitwise_xor(T a, T b) { return a ^ b; }
T op_bitwise_not(T a) { return a ^ ONES; }
#endif
