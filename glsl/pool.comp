#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Windows over planes (N, C, cells...), cells and windows with three coordinates each.
//   -DOP_pool_index       position of each window's maximum in its flattened plane: the first of equals, NaN
//                         before all
//   -DOP_max_pool         that maximum
//   -DOP_pool_put         for each cell, of the windows that see it, the sum of the gradients of those that it won
//   -DOP_avg_pool         sum of each window over its share
//   -DOP_avg_pool_input   for each cell, over the windows that see it, the sum of gradient over share
//   -DIN=FLOAT32, INT32, UINT8 or BOOL
// `turns` says which part of a window, or of the windows over a cell, is done: a lane may not loop for
// ever. Between parts the result holds what was found. FIXED says that windows are the constants' and are done
// in one part: then loops are unrolled.
#define BOOL 0
#define UINT8 1
#define INT32 2
#define FLOAT32 3
#include "grid.glsl"
#include "math.glsl"

layout(binding = 0) buffer To { uint to[]; };
layout(binding = 1) readonly buffer From { uint from[]; };
#ifdef OP_pool_put
layout(binding = 2) readonly buffer Winners { int winners[]; };
#endif

layout(constant_id = 1) const int FIXED = 0;
layout(constant_id = 2) const int KERNEL_X = 1;
layout(constant_id = 3) const int KERNEL_Y = 1;
layout(constant_id = 4) const int KERNEL_Z = 1;
layout(constant_id = 5) const int STRIDE_X = 1;
layout(constant_id = 6) const int STRIDE_Y = 1;
layout(constant_id = 7) const int STRIDE_Z = 1;
layout(constant_id = 8) const int DILATION_X = 1;
layout(constant_id = 9) const int DILATION_Y = 1;
layout(constant_id = 10) const int DILATION_Z = 1;

layout(push_constant) uniform Push {
    int count, channels;
    int cells[3], windows[3], kernel[3], stride[3], low[3], dilation[3];
    int from_offset, from_sample, from_channel, from_step[3];
    int to_offset;
    int mode;       // of the share: 0 a number, 1 the cells with padding, 2 the cells without; or the first winner
    float divisor;
    int turns[2];
} push;

ivec3 triple(int v[3]) { return ivec3(v[0], v[1], v[2]); }
int product(ivec3 v) { return v.x * v.y * v.z; }
bool inside(ivec3 v, ivec3 end) { return all(greaterThanEqual(v, ivec3(0))) && all(lessThan(v, end)); }

ivec3 kernel_() {
    return FIXED == 1 ? ivec3(KERNEL_X, KERNEL_Y, KERNEL_Z) : triple(push.kernel);
}
ivec3 stride_() {
    return FIXED == 1 ? ivec3(STRIDE_X, STRIDE_Y, STRIDE_Z) : triple(push.stride);
}
ivec3 dilation_() {
    return FIXED == 1 ? ivec3(DILATION_X, DILATION_Y, DILATION_Z) : triple(push.dilation);
}

ivec3 unravel(int i, ivec3 lengths) {
    int row = int(uint(i) / uint(lengths.z)), plane = int(uint(row) / uint(lengths.y));
    return ivec3(plane, row - plane * lengths.y, i - row * lengths.z);
}

ivec3 next(ivec3 v, ivec3 lengths) {
    ++v.z;
    if (v.z < lengths.z) return v;
    return v.y + 1 < lengths.y ? ivec3(v.x, v.y + 1, 0) : ivec3(v.x + 1, 0, 0);
}

int corner(int plane) {
    int sample_ = int(uint(plane) / uint(push.channels)), channel = plane - sample_ * push.channels;
    return push.from_offset + sample_ * push.from_sample + channel * push.from_channel;
}

int offset(ivec3 at) {
    ivec3 far = at * triple(push.from_step);
    return far.x + far.y + far.z;
}

ivec3 begin_of(ivec3 window) { return window * stride_() - triple(push.low); }

float share(ivec3 window) {
    if (push.mode == 0) return push.divisor;
    ivec3 cells = triple(push.cells), begin = begin_of(window);
    ivec3 end = min(begin + kernel_(), cells + triple(push.low));
    if (push.mode == 2) {
        begin = max(begin, ivec3(0));
        end = min(end, cells);
    }
    return float(product(max(end - begin, ivec3(0))));
}

// Each op has a State, and visit(s, at) takes one more place in: a cell of a window, or a window over a cell.
#if defined(OP_pool_index) || defined(OP_max_pool)
#if IN == FLOAT32
bool better(uint found, uint best) {
    float a = uintBitsToFloat(found), b = uintBitsToFloat(best);
    return !is_nan(b) && (is_nan(a) || a > b);
}
#define LOWEST 0xFF800000u
#elif IN == INT32
bool better(uint found, uint best) { return int(found) > int(best); }
#define LOWEST 0x80000000u
#else
bool better(uint found, uint best) { return found > best; }
#define LOWEST 0u
#endif

const int NONE = -1;
struct State { int plane; ivec3 begin; uint best; int winner; };

int flat_position(ivec3 at) { return (at.x * push.cells[1] + at.y) * push.cells[2] + at.z; }

void visit(inout State s, ivec3 cell) {
    ivec3 at = s.begin + cell * dilation_();
    if (!inside(at, triple(push.cells))) return;
    uint found = from[s.plane + offset(at)];
#ifdef OP_max_pool
    if (better(found, s.best)) s.best = found;
#else
    if (s.winner == NONE || better(found, s.best)) {
        s.best = found;
        s.winner = flat_position(at);
    }
#endif
}

State start(int i, int plane, ivec3 window) {
    State s = State(corner(plane), begin_of(window), LOWEST, NONE);
    if (push.turns[0] == 0) return s;
#ifdef OP_max_pool
    s.best = to[push.to_offset + i];
#else
    s.winner = int(to[push.to_offset + i]);
    if (s.winner != NONE) s.best = from[s.plane + offset(unravel(s.winner, triple(push.cells)))];
#endif
    return s;
}

uint finished(State s, ivec3 window) {
#ifdef OP_max_pool
    return s.best;
#else
    if (s.winner == NONE && push.turns[1] == product(kernel_())) {  // the first cell behind the padding
        ivec3 steps = dilation_();
        s.winner = flat_position(s.begin + max(ivec3(0), (steps - 1 - s.begin) / steps) * steps);
    }
    return uint(s.winner);
#endif
}

#elif defined(OP_avg_pool)
struct State { int plane; ivec3 begin; float sum; };

void visit(inout State s, ivec3 cell) {
    ivec3 at = s.begin + cell;
    if (inside(at, triple(push.cells))) s.sum += uintBitsToFloat(from[s.plane + offset(at)]);
}

State start(int i, int plane, ivec3 window) {
    float sum = push.turns[0] == 0 ? 0.0 : uintBitsToFloat(to[push.to_offset + i]);
    return State(corner(plane), begin_of(window), sum);
}

uint finished(State s, ivec3 window) {
    return floatBitsToUint(push.turns[1] == product(kernel_()) ? quotient(s.sum, share(window)) : s.sum);
}

#else
#define BACK 1
struct State { int plane, windows, own; ivec3 at, first; float sum; };

// Windows over a cell, along each axis.
ivec3 reach() { return (kernel_() - 1) * dilation_() / stride_() + 1; }

void visit(inout State s, ivec3 back) {
    ivec3 window = s.first + back;
    if (!inside(window, triple(push.windows))) return;
#ifdef OP_pool_put
    ivec3 lengths = triple(push.windows);
    if (winners[s.windows + (window.x * lengths.y + window.y) * lengths.z + window.z] != s.own) return;
    s.sum += uintBitsToFloat(from[s.plane + offset(window)]);
#else
    if (all(greaterThan(window * stride_() + kernel_(), s.at)))
        s.sum += quotient(uintBitsToFloat(from[s.plane + offset(window)]), share(window));
#endif
}

State start(int i, int plane, ivec3 cell) {
    ivec3 at = cell + triple(push.low), lengths = triple(push.cells);
    float sum = push.turns[0] == 0 ? 0.0 : uintBitsToFloat(to[push.to_offset + i]);
    int own = (cell.x * lengths.y + cell.y) * lengths.z + cell.z;
    int windows = push.mode + plane * product(triple(push.windows));
    return State(corner(plane), windows, own, at, at / stride_() - reach() + 1, sum);
}

uint finished(State s, ivec3 cell) { return floatBitsToUint(s.sum); }
#endif

#if BACK
#define PLACES reach()
#define LENGTHS triple(push.cells)
#else
#define PLACES kernel_()
#define LENGTHS triple(push.windows)
#endif

void main() {
    ivec3 lengths = LENGTHS, places = PLACES;
    EACH(i, uint(push.count)) {
        int plane = int(i / uint(product(lengths)));
        ivec3 at = unravel(int(i) - plane * product(lengths), lengths);
        State s = start(int(i), plane, at);
        if (FIXED == 1) {
            [[unroll]] for (int x = 0; x < places.x; ++x)
                [[unroll]] for (int y = 0; y < places.y; ++y)
                    [[unroll]] for (int z = 0; z < places.z; ++z) visit(s, ivec3(x, y, z));
        } else {
            ivec3 place = unravel(push.turns[0], places);
            for (int t = push.turns[0]; t < push.turns[1]; ++t) {
                visit(s, place);
                place = next(place, places);
            }
        }
        to[push.to_offset + int(i)] = finished(s, at);
    }
}
