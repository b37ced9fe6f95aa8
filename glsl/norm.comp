#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Brings rows to a common scale; axes may lie anywhere, the kept ones tell rows apart.
//   -DOP_softmax, …   see norm.glsl
//   -DINPUTS=2        there is a gradient
//   -DALONG=4         a load takes four neighbours of the last folded axis, whose length the host has divided by four;
//   -DACROSS=4        or of the last kept axis, likewise
//   -DHELD=8          FOLD_LANES lanes hold a row, with up to so many loads a lane, so that it is read once
//   -DHELD=0          glsl/reduce.comp has folded the rows

#if HELD
layout(local_size_x_id = 0) in;
#else
#include "grid.glsl"
#endif
layout(constant_id = 1) const int FOLD_LANES = 1;
layout(constant_id = 2) const int KEPT_RANK = 0;    // axes: first the kept ones, then the folded ones
layout(constant_id = 3) const int FOLDED_RANK = 0;
layout(constant_id = 4) const int BESIDE = 0;       // 1: neighbouring lanes have neighbouring rows

const int MAX_AXES = 6;

layout(push_constant) uniform Push {
    int kept, folded;  // loads: of one row or of four, and in a row
    float eps;
    int rows_offset, to_offset, x_offset, y_offset;
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

ivec3 cells(int i, int first_axis, int rank) {  // of the result and of both inputs
    ivec3 at = ivec3(0);
    for (int axis = first_axis + rank - 1; axis >= first_axis; --axis) {
        int rest = axis == first_axis ? 0 : int(uint(i) / uint(push.shape[axis]));
        at += (i - rest * push.shape[axis]) * ivec3(push.to_strides[axis], push.x_strides[axis], push.y_strides[axis]);
        i = rest;
    }
    return at;
}

ivec3 row_start(int kept) { return ivec3(push.to_offset, push.x_offset, push.y_offset) + cells(kept, 0, KEPT_RANK); }

float nth(vec4 words, int k) { return words[k]; }
float nth(float word, int k) { return word; }

WORDS load_y(int at) {
#if INPUTS == 2
    return y_words[at / WIDTH];
#else
    return WORDS(0.0);
#endif
}

#if HELD
#include "team.glsl"

const int ELEMENTS = HELD * ALONG;  // of a lane
float x[ELEMENTS], y[ELEMENTS];

int place(int h) { return h * FOLD_LANES + fold_lane(); }  // of the load h of this lane

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

#if defined(OP_softmax) || defined(OP_log_softmax)
// With the largest element known, each exponential is needed once.
State fold_row(float first) {
    State s = nothing();
    [[unroll]] for (int i = 0; i < ELEMENTS; ++i)
        if (place(i / ALONG) < push.folded && !is_nan(s.top)) s.top = is_nan(x[i]) ? x[i] : max(s.top, x[i]);
    s = State(vec2(0.0), shared_out(s).top, 0.0);
    [[unroll]] for (int i = 0; i < ELEMENTS; ++i) {
        float e = exp_apart(x[i], s.top);
        if (place(i / ALONG) < push.folded) add(s.sum, e);
#ifdef OP_softmax
        x[i] = e;
#endif
    }
    return shared_out(s);
}
#else
State fold_row(float first) {
    State s = nothing();
    [[unroll]] for (int i = 0; i < ELEMENTS; ++i)
        if (place(i / ALONG) < push.folded) take(s, x[i], y[i], first);
    return shared_out(s);
}
#endif

void write_row(Row row, int start, float first) {
    [[unroll]] for (int h = 0; h < HELD; ++h) {
        WORDS result;
#ifdef OP_softmax
#define RESULT(i) x[i] * row.share
#else
#define RESULT(i) applied(row, x[i], y[i], first)
#endif
#if WIDTH == 4
        [[unroll]] for (int k = 0; k < 4; ++k) result[k] = RESULT(h * 4 + k);
#else
        result = RESULT(h);
#endif
        if (place(h) < push.folded) to[(start + cells(place(h), KEPT_RANK, FOLDED_RANK).x) / WIDTH] = result;
    }
}

void main() {
    int count = push.folded * ALONG;
    vec2 row_length = two_sum(float(count & 0x7FFFF000), float(count & 0xFFF));
    for (int first_row = int(gl_WorkGroupID.x) * FOLDS; first_row < push.kept; first_row += int(gl_NumWorkGroups.x) * FOLDS) {
        int kept = first_row + own_fold();
        ivec3 start = row_start(min(kept, push.kept - 1));
        float first = nth(x_words[start.y / WIDTH], 0);
        load_row(start);
        Row row = finished(fold_row(first), row_length, push.eps);
        if (kept < push.kept) write_row(row, start.x, first);
    }
}

#else
layout(std430, binding = INPUTS + 1) readonly buffer Rows { Row rows[]; };

void main() {
    EACH(i, uint(push.kept) * uint(push.folded)) {
        int outer = int(i / uint(BESIDE == 1 ? push.kept : push.folded));
        int inner = int(i) - outer * (BESIDE == 1 ? push.kept : push.folded);
        int kept = BESIDE == 1 ? inner : outer, element = BESIDE == 1 ? outer : inner;
        ivec3 start = row_start(kept), at = start + cells(element, KEPT_RANK, FOLDED_RANK);
        WORDS x = x_words[at.y / WIDTH], y = load_y(at.z), first = x_words[start.y / WIDTH], result;
#if WIDTH == 4
        [[unroll]] for (int k = 0; k < 4; ++k) {
            int row = push.rows_offset + (ACROSS == 4 ? kept * 4 + k : kept);
            result[k] = applied(rows[row], x[k], y[k], first[ACROSS == 4 ? k : 0]);
        }
#else
        result = applied(rows[push.rows_offset + kept], x, y, first);
#endif
        to[at.x / WIDTH] = result;
    }
}
#endif
