#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Brings rows to a common scale; axes may lie anywhere, the kept ones tell rows apart.
//   -DOP_softmax, …   see norm.glsl
//   -DINPUTS=2        there is a gradient
//   -DALONG=4         a load takes four neighbours of the last folded axis, divided by four by the host;
//   -DACROSS=4        or of the last kept axis, likewise
//   -DHELD=8          FOLD_LANES lanes hold a row, with up to so many loads a lane, so that it is read once
//   -DHELD=0          glsl/reduce.comp has folded the rows
// normalize has a weight and a bias for each element, which lie alike, rms_normalize a weight; normalize_input has
// a weight for each row.

#if HELD
layout(local_size_x_id = 0) in;
#else
#include "grid.glsl"
#endif
layout(constant_id = 1) const int FOLD_LANES = 1;
layout(constant_id = 2) const int KEPT_RANK = 0;    // axes: first the kept ones, then the folded ones
layout(constant_id = 3) const int FOLDED_RANK = 0;
layout(constant_id = 4) const int BESIDE = 0;       // 1: neighbouring lanes have neighbouring rows
layout(constant_id = 5) const int STEP = 0;         // from weight to weight

const int MAX_AXES = 6;

layout(push_constant) uniform Push {
    int kept, folded;  // loads: of one row or of four, and in a row
    float eps;
    int rows_offset, to_offset, x_offset, y_offset;  // y: the gradient, else the weight
    int more_offset;                                 // of the bias, or of the weight beside a gradient
    int shape[MAX_AXES], to_strides[MAX_AXES], x_strides[MAX_AXES], y_strides[MAX_AXES];
} push;

#include "norm.glsl"

#if ALONG * ACROSS == 4
#define WORDS vec4
#define WIDTH 4
#else
#define WORDS float
#define WIDTH 1
#endif

layout(binding = 0) writeonly buffer To { WORDS to[]; };
layout(binding = 1) readonly buffer X { WORDS x_words[]; };
#if INPUTS == 2
layout(binding = 2) readonly buffer Y { WORDS y_words[]; };
#endif
#ifdef OP_normalize
layout(binding = 2) readonly buffer Weight { float weight[]; };
layout(binding = 3) readonly buffer Bias { float bias[]; };
#define ROWS_BINDING 4
#elif defined(OP_rms_normalize)
layout(binding = 2) readonly buffer Weight { float weight[]; };
#define ROWS_BINDING 3
#elif defined(OP_normalize_input)
layout(binding = 3) readonly buffer Weight { float weight[]; };
#define ROWS_BINDING 4
#else
#define ROWS_BINDING (INPUTS + 1)
#endif

ivec3 cells(int i, int first_axis, int rank) {  // of the result and of both inputs
    ivec3 at = ivec3(0);
    for (int axis = first_axis + rank - 1; axis >= first_axis; --axis) {
        int rest = axis == first_axis ? 0 : int(uint(i) / uint(push.shape[axis]));
        ivec3 strides = ivec3(push.to_strides[axis], push.x_strides[axis], push.y_strides[axis]);
        at += (i - rest * push.shape[axis]) * strides;
        i = rest;
    }
    return at;
}

ivec3 row_start(int kept) {
    return ivec3(push.to_offset, push.x_offset, push.y_offset) + cells(kept, 0, KEPT_RANK);
}

float nth(vec4 words, int k) { return words[k]; }
float nth(float word, int k) { return word; }

WORDS load_y(int at) {
#if INPUTS == 2
    return y_words[at / WIDTH];
#else
    return WORDS(0.0);
#endif
}

// The element k of a result, where `at` is the weight's, or the row.
float finally(float x, int at, int k) {
#ifdef OP_normalize
    at += k * STEP;
    return x * weight[at] + bias[at - push.y_offset + push.more_offset];
#elif defined(OP_rms_normalize)
    return x * weight[at + k * STEP];
#elif defined(OP_normalize_input)
    return x * weight[push.more_offset + (ACROSS == 4 ? at * 4 + k : at) * STEP];
#else
    return x;
#endif
}

#if HELD
#include "team.glsl"

const int ELEMENTS = HELD * ALONG;  // of a lane
float x[ELEMENTS], y[ELEMENTS];

int place(int h) { return h * FOLD_LANES + fold_lane(); }  // of the load h of this lane
bool inside(int h) { return place(h) < push.folded; }

void load_row(ivec3 start) {
    [[unroll]] for (int h = 0; h < HELD; ++h) {
        ivec3 at = start + cells(min(place(h), push.folded - 1), KEPT_RANK, FOLDED_RANK);
        WORDS some_x = x_words[at.y / WIDTH], some_y = load_y(at.z);
        [[unroll]] for (int k = 0; k < ALONG; ++k) {
            x[h * ALONG + k] = nth(some_x, k);
            y[h * ALONG + k] = nth(some_y, k);
        }
    }
}

#if ALONG == 4
vec4 four(float values[ELEMENTS], int h) {
    return vec4(values[h * 4], values[h * 4 + 1], values[h * 4 + 2], values[h * 4 + 3]);
}
#endif

#if defined(OP_softmax) || defined(OP_log_softmax)
// The largest element of the row, or NaN if there is one.
float top_of_row() {
    State s = nothing();
    uint bits = 0u;
    [[unroll]] for (int i = 0; i < ELEMENTS; ++i) {
        s.top = max(s.top, inside(i / ALONG) ? x[i] : -INFINITY);
        bits = max(bits, floatBitsToUint(x[i]) & 0x7FFFFFFFu);  // behind the row, some of it again
    }
    if (bits > 0x7F800000u) s.top = NAN;
    return shared_out(s).top;
}

// With the largest element known, each exponential is needed once.
State fold_row(vec2 row_length) {
    State s = State(vec2(0.0), top_of_row(), 0.0);
    [[unroll]] for (int h = 0; h < HELD; ++h) {
        float e[ALONG];
        [[unroll]] for (int k = 0; k < ALONG; ++k) e[k] = exp_apart(x[h * ALONG + k], s.top);
#ifdef OP_softmax
        [[unroll]] for (int k = 0; k < ALONG; ++k) x[h * ALONG + k] = e[k];
#endif
        if (!inside(h)) continue;
#if ALONG == 4 && defined(OP_softmax)
        add(s.sum, sum_of(vec4(e[0], e[1], e[2], e[3])));
#else  // the logarithm of a sum near 1 needs what lies behind the 1
        [[unroll]] for (int k = 0; k < ALONG; ++k) add(s.sum, e[k]);
#endif
    }
    return shared_out(s);
}
#else

#if CENTRED
void centre(vec2 row_length) {
    State sums = nothing();
    [[unroll]] for (int i = 0; i < ELEMENTS; ++i)
        if (inside(i / ALONG)) {
            add(sums.squares, x[i]);
#if INPUTS == 2
            add(sums.products, y[i]);
#endif
        }
    sums = shared_out(sums);
    vec2 mean = pair_quotient(sums.squares, row_length);
    [[unroll]] for (int i = 0; i < ELEMENTS; ++i) {
        precise float rest = (x[i] - mean.x) - mean.y;
        x[i] = rest;
    }
#if INPUTS == 2
    vec2 mean_y = pair_quotient(sums.products, row_length);
    [[unroll]] for (int i = 0; i < ELEMENTS; ++i) {
        precise float rest = (y[i] - mean_y.x) - mean_y.y;
        y[i] = rest;
    }
#endif
}
#endif

State fold_row(vec2 row_length) {
#if CENTRED
    centre(row_length);
#endif
    State s = nothing();
    [[unroll]] for (int h = 0; h < HELD; ++h)
#if ALONG == 4
        if (inside(h)) take_four(s, four(x, h), four(y, h));
#else
        if (inside(h)) take(s, x[h], y[h], 0.0);
#endif
    return shared_out(s);
}
#endif

void write_row(Row row, ivec3 start, int kept) {
    [[unroll]] for (int h = 0; h < HELD; ++h) {
        WORDS result;
#ifdef OP_softmax
#define RESULT(i) x[i] * row.share
#else
#define RESULT(i) applied(row, x[i], y[i])
#endif
        if (!inside(h)) continue;
        ivec3 at = start + cells(place(h), KEPT_RANK, FOLDED_RANK);
#if INPUTS == 2
        at.z = kept;
#endif
#if WIDTH == 4
        [[unroll]] for (int k = 0; k < 4; ++k) result[k] = finally(RESULT(h * 4 + k), at.z, k);
#else
        result = finally(RESULT(h), at.z, 0);
#endif
        to[at.x / WIDTH] = result;
    }
}

void main() {
    int count = push.folded * ALONG, rows = int(gl_NumWorkGroups.x) * FOLDS;
    vec2 row_length = two_sum(float(count & 0x7FFFF000), float(count & 0xFFF));
    for (int first = int(gl_WorkGroupID.x) * FOLDS; first < push.kept; first += rows) {
        int kept = first + own_fold();
        ivec3 start = row_start(min(kept, push.kept - 1));
        load_row(start);
        Row row = finished(fold_row(row_length), row_length, push.eps);
        if (kept < push.kept) write_row(row, start, kept);
    }
}

#else
layout(std430, binding = ROWS_BINDING) readonly buffer Rows { Row rows[]; };

#if ALONG == 4
const int LOADS = 4;  // of a lane, on their way at once; norm.py has the same

// A workgroup is told once what all of a piece of a row needs to know.
void main() {
    int lanes = int(gl_WorkGroupSize.x), size = lanes * LOADS, pieces = (push.folded + size - 1) / size;
    int tasks = push.kept * pieces, each = (tasks - 1) / int(gl_NumWorkGroups.x) + 1;
    int own = int(gl_WorkGroupID.x) * each;
    for (int task = own; task < min(own + each, tasks); ++task) {
        int kept = task / pieces, first = (task - kept * pieces) * size + int(gl_LocalInvocationID.x);
        ivec3 start = row_start(kept), at[LOADS];
        Row row = readied(rows[push.rows_offset + kept]);
        vec4 x[LOADS], y[LOADS];
        [[unroll]] for (int l = 0; l < LOADS; ++l) {
            at[l] = start + cells(min(first + l * lanes, push.folded - 1), KEPT_RANK, FOLDED_RANK);
            x[l] = x_words[at[l].y / 4];
            y[l] = load_y(at[l].z);
        }
        [[unroll]] for (int l = 0; l < LOADS; ++l) {
            if (first + l * lanes >= push.folded) continue;
            vec4 result;
            [[unroll]] for (int k = 0; k < 4; ++k)
                result[k] = finally(applied(row, x[l][k], y[l][k]), INPUTS == 2 ? kept : at[l].z, k);
            to[at[l].x / 4] = result;
        }
    }
}

#else
void main() {
    EACH(i, uint(push.kept) * uint(push.folded)) {
        int outer = int(i / uint(BESIDE == 1 ? push.kept : push.folded));
        int inner = int(i) - outer * (BESIDE == 1 ? push.kept : push.folded);
        int kept = BESIDE == 1 ? inner : outer, element = BESIDE == 1 ? outer : inner;
        ivec3 start = row_start(kept), at = start + cells(element, KEPT_RANK, FOLDED_RANK);
        WORDS x = x_words[at.y / WIDTH], y = load_y(at.z), result;
#if INPUTS == 2
        at.z = kept;
#endif
#if WIDTH == 4
        [[unroll]] for (int k = 0; k < 4; ++k)
            result[k] = finally(applied(readied(rows[push.rows_offset + kept * 4 + k]), x[k], y[k]), at.z, k);
#else
        result = finally(applied(readied(rows[push.rows_offset + kept]), x, y), at.z, 0);
#endif
        to[at.x / WIDTH] = result;
    }
}
#endif
#endif
