// What it means to fold elements, op by op: -DOP_sum and so on, named as in the table; FLOATING says
// whether elements are floats. Each op has a State of 1, 2, 4 or 8 words and
//   State nothing()                    the fold of no element;
//   void take(s, x, at, first)         fold one more element in: its word, its place, the first one's word;
//   State merged(a, b)                 the fold of what both have folded;
//   uint finished(s, count, divisor)   the word of the result, for so many elements;
//   void tidy(s)                       if TIDY is defined: brings what the roundings lost back into the sums.
// Elements may come in any order, so places decide where the order matters.
#include "math.glsl"

// A sum of floats, and apart from it the sum of what its roundings lost (Neumaier, ZAMM 54, 1974). An
// infinity or NaN shows in the first only.
void add(inout vec2 sum, float x) {
    vec2 next = two_sum(sum.x, x);
    sum = vec2(next.x, sum.y + next.y);
}

vec2 plus(vec2 a, vec2 b) {
    vec2 sum = two_sum(a.x, b.x);
    return vec2(sum.x, sum.y + (a.y + b.y));
}

bool is_finite(float x) { return (floatBitsToUint(x) & 0x7F800000u) != 0x7F800000u; }

vec2 settled(vec2 sum) { return is_finite(sum.x) ? two_sum(sum.x, sum.y) : vec2(sum.x, 0.0); }
float rounded(vec2 sum) { return settled(sum).x; }

// a / b for b >= 0.
vec2 pair_quotient(vec2 a, vec2 b) {
    if (b.x == 0.0) return vec2(a.x == 0.0 || is_nan(a.x) ? NAN : with_sign(INFINITY, a.x), 0.0);
    a = settled(a);
    if (!is_finite(a.x)) return a;
    float q = a.x / b.x;
    vec2 back = two_product(q, b.x);
    precise float rest = ((a.x - back.x) - back.y) + (a.y - q * b.y);
    return two_sum(q, rest / b.x);
}

// Σ(x - mean)², from sums of x - c and of (x - c)². If c is one of n elements, n (c - mean)² is at most n
// times the result, so that the subtraction costs log2 n of the 47 bits that a pair has, however far the
// mean is from zero.
vec2 apart_squares(vec2 sum, vec2 squares, vec2 count) {
    sum = settled(sum);
    squares = settled(squares);
    if (!is_finite(squares.x)) return is_finite(sum.x) ? squares : vec2(NAN, 0.0);
    vec2 apart = settled(plus(squares, -pair_product(sum, pair_quotient(sum, count))));
    return apart.x < 0.0 ? vec2(0.0) : apart;
}

vec2 two_square(float x) {
    float high = uintBitsToFloat(floatBitsToUint(x) & 0xFFFFF000u);
    precise float low = x - high, square = x * x;
    precise float lost = ((high * high - square) + 2.0 * high * low) + low * low;
    return vec2(square, lost);
}

void add_square(inout vec2 sum, float x) {
    vec2 square = two_square(x);
    add(sum, square.x);
    sum.y += square.y;
}

#if defined(OP_sum) || defined(OP_mean) || defined(OP_cumsum)

#if FLOATING
struct State { vec2 sum; };
State nothing() { return State(vec2(0.0)); }
void take(inout State s, uint x, int at, uint first) { add(s.sum, uintBitsToFloat(x)); }
State merged(State a, State b) { return State(plus(a.sum, b.sum)); }
#ifdef OP_mean
uint finished(State s, vec2 count, vec2 divisor) {
    return floatBitsToUint(rounded(pair_quotient(s.sum, count)));
}
#else
uint finished(State s, vec2 count, vec2 divisor) { return floatBitsToUint(rounded(s.sum)); }
#endif
#else
struct State { uint sum; };
State nothing() { return State(0u); }
void take(inout State s, uint x, int at, uint first) { s.sum += x; }
State merged(State a, State b) { return State(a.sum + b.sum); }
uint finished(State s, vec2 count, vec2 divisor) { return s.sum; }
#endif

#elif defined(OP_prod)

#if FLOATING
// digits · 2^exponent with digits from 1 to 2, so that no partial product overflows.
struct State { vec2 digits; int exponent; int unused; };
State nothing() { return State(vec2(1.0, 0.0), 0, 0); }

State normalised(State s) {
    uint bits = floatBitsToUint(s.digits.x) & 0x7F800000u;
    if (bits == 0u || bits == 0x7F800000u) return State(vec2(s.digits.x, 0.0), 0, 0);  // 0, ∞, NaN
    int shift = int(bits >> 23) - 127;
    return State(s.digits * power_of_two(-clamp(shift, -126, 126)), s.exponent + shift, 0);
}

State merged(State a, State b) {
    return normalised(State(pair_product(a.digits, b.digits), a.exponent + b.exponent, 0));
}

void take(inout State s, uint x, int at, uint first) {
    uint exponent = (x >> 23) & 0xFFu;
    bool normal = exponent - 1u < 254u;
    float digit = uintBitsToFloat(normal ? (x & 0x807FFFFFu) | 0x3F800000u : x);
    s.exponent += normal ? int(exponent) - 127 : 0;
    vec2 product = two_product(s.digits.x, digit);
    s.digits = vec2(product.x, product.y + s.digits.y * digit);
    if (abs(s.digits.x) > 1e18) s = normalised(s);
}

uint finished(State s, vec2 count, vec2 divisor) {
    vec2 factors = power_factors(clamp(s.exponent, -250, 250));
    return floatBitsToUint(rounded(s.digits) * factors.x * factors.y);
}
#else
struct State { uint product; };
State nothing() { return State(1u); }
void take(inout State s, uint x, int at, uint first) { s.product *= x; }
State merged(State a, State b) { return State(a.product * b.product); }
uint finished(State s, vec2 count, vec2 divisor) { return s.product; }
#endif

#elif defined(OP_amax) || defined(OP_amin) || defined(OP_argmax) || defined(OP_argmin)

// Floats as integers of the same order, where NaN comes out on top of what is sought.
#if defined(OP_amax) || defined(OP_argmax)
const int WORST = int(0x80000000u), BEST = 0x7FFFFFFF;
#define BETTER >
#else
const int WORST = 0x7FFFFFFF, BEST = int(0x80000000u);
#define BETTER <
#endif

int ordered(int bits) { return bits ^ ((bits >> 31) & 0x7FFFFFFF); }  // its own inverse

int key(uint x) {
#if FLOATING
    return is_nan(uintBitsToFloat(x)) ? BEST : ordered(int(x));
#else
    return int(x);
#endif
}

#if defined(OP_amax) || defined(OP_amin)
struct State { int best; };
State nothing() { return State(WORST); }
State merged(State a, State b) { return State(b.best BETTER a.best ? b.best : a.best); }
void take(inout State s, uint x, int at, uint first) { s = merged(s, State(key(x))); }
uint finished(State s, vec2 count, vec2 divisor) { return uint(FLOATING == 1 ? ordered(s.best) : s.best); }
#else
struct State { int best, at; };  // the first of equals wins
State nothing() { return State(WORST, 0x7FFFFFFF); }

State merged(State a, State b) {
    return b.best BETTER a.best || (b.best == a.best && b.at < a.at) ? b : a;
}

void take(inout State s, uint x, int at, uint first) {
    bool negative_zero = FLOATING == 1 && x == 0x80000000u;
    s = merged(s, State(negative_zero ? 0 : key(x), at));
}

uint finished(State s, vec2 count, vec2 divisor) { return uint(s.at); }
#endif

#elif defined(OP_any) || defined(OP_all)

struct State { uint truth; };

#ifdef OP_any
State nothing() { return State(0u); }
State merged(State a, State b) { return State(a.truth | b.truth); }
#else
State nothing() { return State(1u); }
State merged(State a, State b) { return State(a.truth & b.truth); }
#endif

void take(inout State s, uint x, int at, uint first) {
    s = merged(s, State(uint((FLOATING == 1 ? x & 0x7FFFFFFFu : x) != 0u)));
}

uint finished(State s, vec2 count, vec2 divisor) { return s.truth; }

#elif defined(OP_var)

struct State { vec2 sum, squares; };  // of x - first
State nothing() { return State(vec2(0.0), vec2(0.0)); }

void take(inout State s, uint x, int at, uint first) {
    vec2 d = two_sum(uintBitsToFloat(x), -uintBitsToFloat(first));
    add(s.sum, d.x);
    add_square(s.squares, d.x);
    s.sum.y += d.y;
    s.squares.y += 2.0 * d.x * d.y;
}

#define TIDY 1
void tidy(inout State s) {
    s.sum = settled(s.sum);
    s.squares = settled(s.squares);
}

State merged(State a, State b) { return State(plus(a.sum, b.sum), plus(a.squares, b.squares)); }

uint finished(State s, vec2 count, vec2 divisor) {
    return floatBitsToUint(rounded(pair_quotient(apart_squares(s.sum, s.squares, count), divisor)));
}

#elif defined(OP_norm)

// Where squares overflow, or vanish, those of scaled numbers take their place (Blue, ACM TOMS 4, 1978).
// Numbers below 1e8 count for nothing beside squares that overflow.
struct State { vec2 squares, large, small, unused; };
const float DOWN = 8.27180613e-25, UP = 1.20892582e24;  // 2^-80, 2^80
State nothing() { return State(vec2(0.0), vec2(0.0), vec2(0.0), vec2(0.0)); }

void take(inout State s, uint word, int at, uint first) {
    float x = uintBitsToFloat(word), size = abs(x);
    add(s.squares, x * x);
    if (size > 1e8) add(s.large, x * DOWN * (x * DOWN));
    if (size < 1e-8 && size > 0.0) add(s.small, x * UP * (x * UP));
}

State merged(State a, State b) {
    return State(plus(a.squares, b.squares), plus(a.large, b.large), plus(a.small, b.small), vec2(0.0));
}

uint finished(State s, vec2 count, vec2 divisor) {
    float squares = rounded(s.squares), root = math_sqrt(squares);
    if (is_infinite(squares)) root = math_sqrt(rounded(s.large)) * UP;
    else if (squares < DOWN) root = math_sqrt(rounded(s.small)) * DOWN;
    return floatBitsToUint(root);
}

#elif defined(OP_logsumexp)

// Σ exp(x - top) to 39 bits: where the logarithm nearly cancels against `top`, most digits of the sum are
// lost.
struct State { vec2 sum; float top, unused; };
State nothing() { return State(vec2(0.0), -INFINITY, 0.0); }

// e to the power d, for d <= 0, from the 16th power of a short series.
vec2 exp_pair(vec2 d) {
    if (d.x < -80.0) return vec2(0.0);
    float n = roundEven(d.x * LOG2_E);
    vec2 low = two_product(-n, LN2_LOW);
    vec2 r = two_sum(d.x - n * LN2_HIGH, low.x);
    r = vec2(r.x, r.y + (low.y + d.y)) * 0.0625;
    vec2 square = two_product(r.x, r.x);
    float cubic = r.x * square.x * (0.166666672 + r.x * (0.0416666679 + r.x * 0.00833333377));
    precise float rest = 0.5 * square.y + (r.y + r.x * r.y + cubic);
    vec2 e = plus(two_sum(1.0, r.x), two_sum(0.5 * square.x, rest));
    for (int doubling = 0; doubling < 4; ++doubling) {
        vec2 next = two_product(e.x, e.x);
        e = two_sum(next.x, next.y + 2.0 * e.x * e.y);
    }
    return e * power_of_two(int(n));
}

// One exponential scales whichever is smaller, the new element or what came before.
void take(inout State s, uint word, int at, uint first) {
    float x = uintBitsToFloat(word);
    if (is_nan(s.top) || x == -INFINITY) return;
    bool higher = x > s.top;
    vec2 d = two_sum(x, -s.top), e = exp_pair(higher ? -d : d);
    s.sum = higher ? plus(pair_product(s.sum, e), vec2(1.0, 0.0)) : plus(s.sum, e);
    s.top = is_nan(x) || higher ? x : s.top;
}

State merged(State a, State b) {
    if (is_nan(a.top) || b.top == -INFINITY) return a;
    if (is_nan(b.top) || a.top == -INFINITY) return b;
    State high = a.top > b.top ? a : b, low = a.top > b.top ? b : a;
    vec2 share = pair_product(low.sum, exp_pair(two_sum(low.top, -high.top)));
    return State(plus(high.sum, share), high.top, 0.0);
}

uint finished(State s, vec2 count, vec2 divisor) {
    if (!is_finite(s.top)) return floatBitsToUint(s.top);
    vec2 sum = settled(s.sum);
    float logarithm = math_log(sum.x);  // and what it lacks, by a step of Newton's
    vec2 one = pair_product(sum, exp_pair(vec2(-logarithm, 0.0)));
    precise float low = (one.x - 1.0) + one.y;
    return floatBitsToUint(rounded(plus(vec2(s.top, 0.0), vec2(logarithm, low))));
}

#endif
