#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Folds some axes of a strided view, the kept ones in row-major order. A workgroup has FOLD_LANES lanes for
// each result, which meet in shared memory. Long folds are cut into parts: each leaves a State in memory,
// which a second dispatch folds. On a CPU a workgroup is one vector of lanes, and there are few of them.
//   -DOP_sum, … -DFLOATING=1    see reduce.glsl;  -DNORM=1 -DOP_softmax, …: see norm.glsl
//   -DINPUTS=2   there is a gradient beside the input
//   -DALONG=4    a load takes four neighbours of the last folded axis, which the host has divided by four;
//   -DACROSS=4   or of the last kept axis, likewise, and a lane has four results
//   -DPARTS=1    the result is a State;  -DMERGE=1: so are the elements, a row of them for each part

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const int FOLD_LANES = 1;
layout(constant_id = 2) const int KEPT_RANK = 0;    // axes: first the kept ones, then the folded ones
layout(constant_id = 3) const int FOLDED_RANK = 0;
layout(constant_id = 4) const int BESIDE = 0;       // 1: neighbouring lanes have neighbouring results

const int MAX_AXES = 7, BATCH = ALONG * ACROSS == 4 ? 4 : 8;  // loads on their way at once

layout(push_constant) uniform Push {
    int kept, folded;      // loads: of one fold for each result or four, and in a fold
    int tail;              // elements of a fold behind the fours; or the first of the moments
    int parts;
    int to_offset, from_offset;
    vec2 count, divisor;   // for NORM, eps instead of a divisor
    int shape[MAX_AXES], strides[MAX_AXES];
#if INPUTS == 2
    int second_offset, second_strides[MAX_AXES];
#endif
} push;

#if NORM
#include "norm.glsl"
#define RESULT Row
#define FINISHED(s) finished(s, push.count, push.divisor.x)
void take(inout State s, uint x, uint y, int at, uint first) {
    take(s, uintBitsToFloat(x), uintBitsToFloat(y), uintBitsToFloat(first));
}
#else
#include "reduce.glsl"
#define RESULT uint
#define FINISHED(s) finished(s, push.count, push.divisor)
void take(inout State s, uint x, uint y, int at, uint first) { take(s, x, at, first); }
#endif
#include "team.glsl"

#if PARTS
layout(std430, binding = 0) writeonly buffer To { State to[]; };
#else
layout(std430, binding = 0) writeonly buffer To { RESULT to[]; };
#endif
#if MERGE
layout(std430, binding = 1) readonly buffer From { State from[]; };
#else
layout(binding = 1) readonly buffer From { uint from[]; };
layout(binding = 1) readonly buffer From4 { uvec4 from4[]; };
#endif
#if defined(OP_normalize_sums) && !MERGE
#define BEGUN 1
layout(std430, binding = 3) readonly buffer Known { Moments known[]; };
#endif
#if INPUTS == 2 && !MERGE
layout(binding = 2) readonly buffer Second { uint second[]; };
layout(binding = 2) readonly buffer Second4 { uvec4 second4[]; };
#endif

int cell(int i, int first_axis, int rank, int strides[MAX_AXES]) {
    int at = 0;
    for (int axis = first_axis + rank - 1; axis >= first_axis; --axis) {
        int rest = axis == first_axis ? 0 : int(uint(i) / uint(push.shape[axis]));
        at += (i - rest * push.shape[axis]) * strides[axis];
        i = rest;
    }
    return at;
}

#if MERGE
void fold(inout State s[ACROSS], int kept, int first, int last, int step) {
    for (int i = first; i < last; i += step * BATCH) {
        State other[BATCH];
        [[unroll]] for (int b = 0; b < BATCH; ++b)
            other[b] = from[push.from_offset + min(i + b * step, last - 1) * push.kept + kept];
        [[unroll]] for (int b = 0; b < BATCH; ++b)
            if (i + b * step < last) s[0] = merged(s[0], other[b]);
    }
}

void fold_tail(inout State s, int kept) {}
#else
#if ALONG * ACROSS == 4
#define WORDS uvec4
WORDS load(int at) { return from4[at >> 2]; }
#else
#define WORDS uint
WORDS load(int at) { return from[at]; }
#endif

WORDS load_second(int kept, int i) {
#if INPUTS == 2
    int at = push.second_offset + cell(kept, 0, KEPT_RANK, push.second_strides)
        + cell(i, KEPT_RANK, FOLDED_RANK, push.second_strides);
#if ALONG * ACROSS == 4
    return second4[at >> 2];
#else
    return second[at];
#endif
#else
    return WORDS(0u);
#endif
}

void take_words(inout State s[ACROSS], WORDS x, WORDS y, int i, WORDS first) {
#if ALONG == 4 && FOURS
    take_four(s[0], uintBitsToFloat(x), uintBitsToFloat(y));
#elif ALONG == 4
    [[unroll]] for (int k = 0; k < 4; ++k) take(s[0], x[k], y[k], i * 4 + k, first[0]);
#elif ACROSS == 4
    [[unroll]] for (int k = 0; k < 4; ++k) take(s[k], x[k], y[k], i, first[k]);
#else
    take(s[0], x, y, i, first);
#endif
}

void fold(inout State s[ACROSS], int kept, int first, int last, int step) {
    int base = push.from_offset + cell(kept, 0, KEPT_RANK, push.strides);
    WORDS start = load(base);
    int i = first;
    for (; i + (BATCH - 1) * step < last; i += BATCH * step) {
        WORDS x[BATCH], y[BATCH];
        [[unroll]] for (int b = 0; b < BATCH; ++b) {
            x[b] = load(base + cell(i + b * step, KEPT_RANK, FOLDED_RANK, push.strides));
            y[b] = load_second(kept, i + b * step);
        }
        [[unroll]] for (int b = 0; b < BATCH; ++b) take_words(s, x[b], y[b], i + b * step, start);
#if TIDY
        [[unroll]] for (int k = 0; k < ACROSS; ++k) tidy(s[k]);
#endif
    }
    for (; i < last; i += step) {
        WORDS x = load(base + cell(i, KEPT_RANK, FOLDED_RANK, push.strides));
        take_words(s, x, load_second(kept, i), i, start);
    }
}

// What lies behind the fours of a fold.
void fold_tail(inout State s, int kept) {
    int base = push.from_offset + cell(kept, 0, KEPT_RANK, push.strides);
    for (int i = push.folded * 4 + fold_lane(); i < push.folded * 4 + push.tail; i += FOLD_LANES)
        take(s, from[base + i], 0u, i, from[base]);
}
#endif

void write(State s, int at) {
#if PARTS
    to[push.to_offset + at] = s;
#else
    to[push.to_offset + at] = FINISHED(s);
#endif
}

void main() {
    int tiles = (push.kept + FOLDS - 1) / FOLDS, length = (push.folded + push.parts - 1) / push.parts;
    for (int task = int(gl_WorkGroupID.x); task < tiles * push.parts; task += int(gl_NumWorkGroups.x)) {
        int part = task / tiles, kept = (task - part * tiles) * FOLDS + own_fold();
        State s[ACROSS];
        [[unroll]] for (int k = 0; k < ACROSS; ++k) s[k] = nothing();
        if (kept < push.kept) {
#if BEGUN
            [[unroll]] for (int k = 0; k < ACROSS; ++k) s[k] = begun(known[push.tail + kept * ACROSS + k]);
#endif
            fold(s, kept, part * length + fold_lane(), min(push.folded, (part + 1) * length), FOLD_LANES);
#if !BEGUN
            if (part == 0) fold_tail(s[0], kept);
#endif
        }
        [[unroll]] for (int k = 0; k < ACROSS; ++k) {
            State whole = joined(s[k]);
            if (fold_lane() == 0 && kept < push.kept) write(whole, (part * push.kept + kept) * ACROSS + k);
        }
    }
}
