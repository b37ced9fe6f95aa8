// What it means to bring rows to a common scale, op by op: -DOP_softmax and so on, named as in the table.
// First a row is folded, as in reduce.glsl, where `x` comes from the tensor that is brought to scale and
// `y` from the gradient:
//   State nothing(),  void take(s, x, y, first),  State merged(a, b)
// and then
//   Row finished(s, count, eps)          is what all elements of the row need to know, in 2, 4 or 8 words;
//   float applied(row, x, y)             is an element of the result;
//   Row readied(row)                     where READIED, makes what moments left into what `applied` takes.
// For normalize and normalize_input rows that are not held are folded by moments and normalize_sums.
#include "reduce.glsl"

// Of terms whose rounding the bounds allow.
float sum_of(vec4 x) { return (x.x + x.y) + (x.z + x.w); }

// 1 / √v, with a step of Newton's: GLSL's own is good to two ulps.
float one_over_root(float v) {
    float r = math_rsqrt(v);
    if (!is_finite(r) || r == 0.0) return r;
    vec2 square = two_product(r, r), one = two_product(v, square.x);
    precise float lost = ((1.0 - one.x) - one.y) - v * square.y;
    return r + 0.5 * r * lost;
}

// 1 / √(total / count + eps)
float scale_of(vec2 total, vec2 count, float eps) {
    return one_over_root(rounded(plus(pair_quotient(total, count), vec2(eps, 0.0))));
}

// Rows that are held in registers are centred first, and are then a case of the root mean square.
#if HELD && (defined(OP_normalize) || defined(OP_normalize_input))
#define CENTRED 1
#endif

#if defined(OP_softmax) || defined(OP_log_softmax)

struct State { vec2 sum; float top, unused; };  // Σ exp(x - top)
State nothing() { return State(vec2(0.0), -INFINITY, 0.0); }

const float LEAST = -87.3365;  // whose exponential is the least that is not subnormal

// e to the power x - top, for x <= top; the difference is not rounded. Nothing is promised of NaN.
float exp_apart(float x, float top) {
    vec2 d = two_sum(x, -top);
    float t = max(d.x, LEAST);
    precise float shifted = t * LOG2_E + 12582912.0;  // 1.5 · 2²³ leaves no room for a fraction
    precise float n = shifted - 12582912.0;
    precise float r = ((t - n * LN2_HIGH) - n * LN2_LOW) + d.y;
    float y = 1.0 + (r + r * r * exp_series(r));
    return d.x < LEAST ? 0.0 : uintBitsToFloat(floatBitsToUint(y) + (floatBitsToUint(shifted) << 23));
}

void take(inout State s, float x, float y, float first) {
    if (is_nan(s.top) || x == -INFINITY) return;
    if (is_nan(x)) {
        s.top = x;
    } else if (x > s.top) {
        float share = exp_apart(s.top, x);
        s = State(s.sum * share, x, 0.0);
        add(s.sum, 1.0);
    } else {
        add(s.sum, exp_apart(x, s.top));
    }
}

#if HELD  // lanes agree on `top` before they sum
State merged(State a, State b) {
    float top = is_nan(a.top) ? a.top : is_nan(b.top) ? b.top : max(a.top, b.top);
    return State(plus(a.sum, b.sum), top, 0.0);
}
#else
State merged(State a, State b) {
    if (is_nan(a.top) || b.top == -INFINITY) return a;
    if (is_nan(b.top) || a.top == -INFINITY) return b;
    State high = a.top > b.top ? a : b, low = a.top > b.top ? b : a;
    return State(plus(high.sum, low.sum * exp_apart(low.top, high.top)), high.top, 0.0);
}
#endif

#ifdef OP_softmax
struct Row { float top, share; };
Row finished(State s, vec2 count, float eps) {
    return Row(s.top, is_finite(s.top) ? rounded(pair_quotient(vec2(1.0, 0.0), settled(s.sum))) : NAN);
}
float applied(Row row, float x, float y) { return exp_apart(x, row.top) * row.share; }
#else
struct Row { float top, logarithm; };
Row finished(State s, vec2 count, float eps) {
    precise float beyond_one = (s.sum.x - 1.0) + s.sum.y;
    return Row(is_finite(s.top) ? s.top : NAN, math_log1p(beyond_one));
}
float applied(Row row, float x, float y) {
    vec2 d = two_sum(x, -row.top);
    return is_infinite(d.x) ? d.x : (d.x - row.logarithm) + d.y;
}
#endif

#elif defined(OP_moments)

struct State { vec2 sum, squares; float first, taken, unused, unused2; };  // of x - first
State nothing() { return State(vec2(0.0), vec2(0.0), 0.0, 0.0, 0.0, 0.0); }

void take(inout State s, float x, float y, float first) {
    vec2 d = two_sum(x, -first);
    add(s.sum, d.x);
    add_square(s.squares, d.x);
    s.sum.y += d.y;
    s.squares.y += 2.0 * d.x * d.y;
    s.first = first;
    s.taken = 1.0;
}

#define TIDY 1
void tidy(inout State s) {
    s.sum = settled(s.sum);
    s.squares = settled(s.squares);
}

State merged(State a, State b) {
    float first = a.taken > 0.0 ? a.first : b.first;
    return State(plus(a.sum, b.sum), plus(a.squares, b.squares), first, max(a.taken, b.taken), 0.0, 0.0);
}

struct Row { vec2 mean; float variance, corrected; };
Row finished(State s, vec2 count, float eps) {
    vec2 mean = pair_quotient(s.sum, count), squares = apart_squares(s.sum, s.squares, count);
    mean = settled(plus(two_sum(s.first, mean.x), vec2(0.0, mean.y)));
    float corrected = count.x < 2.0 ? NAN : rounded(pair_quotient(squares, plus(count, vec2(-1.0, 0.0))));
    return Row(mean, rounded(pair_quotient(squares, count)), corrected);
}

#elif defined(OP_normalize_sums)

struct Moments { vec2 mean; float variance, corrected; };
struct State { vec2 sum_y, products, mean; float variance, unused; };  // of y and (x - mean) · y
const float UNKNOWN = -1.0;  // no variance
State nothing() { return State(vec2(0.0), vec2(0.0), vec2(0.0), UNKNOWN, 0.0); }
State begun(Moments m) { return State(vec2(0.0), vec2(0.0), m.mean, m.variance, 0.0); }

void take(inout State s, float x, float y, float first) {
    precise float apart = (x - s.mean.x) - s.mean.y;
    add(s.sum_y, y);
    add(s.products, apart * y);
}

#define FOURS 1
void take_four(inout State s, vec4 x, vec4 y) {
    precise vec4 apart = (x - s.mean.x) - s.mean.y;
    add(s.sum_y, sum_of(y));
    add(s.products, sum_of(apart * y));
}

State merged(State a, State b) {
    vec2 sum_y = plus(a.sum_y, b.sum_y), products = plus(a.products, b.products);
    if (a.variance == UNKNOWN) return State(sum_y, products, b.mean, b.variance, 0.0);
    return State(sum_y, products, a.mean, a.variance, 0.0);
}

struct Row { vec2 mean; float scale, slope, mean_y, sum_y, along, unused; };
Row finished(State s, vec2 count, float eps) {
    float scale = one_over_root(s.variance + eps), along = rounded(s.products) * scale;
    float slope = rounded(pair_quotient(s.products, count)) * scale * scale;
    return Row(s.mean, scale, slope, rounded(pair_quotient(s.sum_y, count)), rounded(s.sum_y), along, 0.0);
}

#elif defined(OP_normalize) && !CENTRED

struct Row { vec2 mean; float variance, corrected; };
#define READIED 1
Row readied(Row row) {
    row.variance = one_over_root(row.variance + push.eps);
    return row;
}
float applied(Row row, float x, float y) {
    precise float apart = (x - row.mean.x) - row.mean.y;
    return apart * row.variance;
}

#elif defined(OP_normalize_input) && !CENTRED

// scale · (y - mean y - x̂ · mean(x̂ y)), where x̂ = (x - mean) · scale
struct Row { vec2 mean; float scale, slope, mean_y, sum_y, along, unused; };
float applied(Row row, float x, float y) {
    precise float apart = (x - row.mean.x) - row.mean.y;
    return row.scale * ((y - row.mean_y) - apart * row.slope);
}

#elif defined(OP_rms_normalize) || defined(OP_normalize)

struct State { vec2 squares; };
State nothing() { return State(vec2(0.0)); }
void take(inout State s, float x, float y, float first) { add(s.squares, x * x); }
void take_four(inout State s, vec4 x, vec4 y) { add(s.squares, sum_of(x * x)); }
State merged(State a, State b) { return State(plus(a.squares, b.squares)); }

struct Row { float scale, unused; };
Row finished(State s, vec2 count, float eps) { return Row(scale_of(s.squares, count, eps), 0.0); }
float applied(Row row, float x, float y) { return x * row.scale; }

#elif defined(OP_rms_normalize_input) || defined(OP_normalize_input)

struct State { vec2 squares, products; };
State nothing() { return State(vec2(0.0), vec2(0.0)); }

void take(inout State s, float x, float y, float first) {
    add(s.squares, x * x);
    add(s.products, x * y);
}

void take_four(inout State s, vec4 x, vec4 y) {
    add(s.squares, sum_of(x * x));
    add(s.products, sum_of(x * y));
}

State merged(State a, State b) { return State(plus(a.squares, b.squares), plus(a.products, b.products)); }

struct Row { float scale, slope; };  // scale · (y - x̂ · mean(x̂ y)), where x̂ = x · scale
Row finished(State s, vec2 count, float eps) {
    float scale = scale_of(s.squares, count, eps);
    return Row(scale, rounded(pair_quotient(s.products, count)) * scale * scale);
}
float applied(Row row, float x, float y) { return row.scale * (y - x * row.slope); }

#endif

#ifndef READIED
#define readied(row) row
#endif
