#version 450
#extension GL_GOOGLE_include_directive : require
// Windows over planes (N, C, cells...), cells and windows with three coordinates each.
//   -DOP_pool_index       position of each window's maximum in its flattened plane: the first of equals, NaN
//                         before all
//   -DOP_avg_pool         sum of each window over its share
//   -DOP_avg_pool_input   for each cell, over the windows that see it, the sum of gradient over share
//   -DIN=FLOAT32, INT32, UINT8 or BOOL
// `turns` says which part of a window, or of the windows over a cell, is done: a lane may not loop for
// ever. Between parts the result holds what was found.
#define BOOL 0
#define UINT8 1
#define INT32 2
#define FLOAT32 3
#include "grid.glsl"
#include "math.glsl"

layout(binding = 0) buffer To { uint to[]; };
layout(binding = 1) readonly buffer From { uint from[]; };

layout(push_constant) uniform Push {
    int count, channels;
    int cells[3], windows[3], kernel[3], stride[3], low[3], dilation[3];
    int from_offset, from_sample, from_channel, from_step[3];
    int to_offset;
    int mode;       // of the share: 0 a number, 1 the cells with padding, 2 the cells without
    float divisor;
    int turns[2];
} push;

ivec3 triple(int v[3]) { return ivec3(v[0], v[1], v[2]); }
int product(ivec3 v) { return v.x * v.y * v.z; }
bool inside(ivec3 v, ivec3 end) { return all(greaterThanEqual(v, ivec3(0))) && all(lessThan(v, end)); }

ivec3 unravel(int i, ivec3 lengths) {
    int row = i / lengths.z, plane = row / lengths.y;
    return ivec3(plane, row - plane * lengths.y, i - row * lengths.z);
}

ivec3 next(ivec3 v, ivec3 lengths) {
    ++v.z;
    if (v.z < lengths.z) return v;
    return v.y + 1 < lengths.y ? ivec3(v.x, v.y + 1, 0) : ivec3(v.x + 1, 0, 0);
}

int address(int plane, ivec3 at) {
    int sample_ = plane / push.channels;
    ivec3 far = at * triple(push.from_step);
    int channel = plane - sample_ * push.channels;
    int corner = push.from_offset + sample_ * push.from_sample + channel * push.from_channel;
    return corner + far.x + far.y + far.z;
}

ivec3 begin_of(ivec3 window) { return window * triple(push.stride) - triple(push.low); }

float share(ivec3 window) {
    if (push.mode == 0) return push.divisor;
    ivec3 cells = triple(push.cells), begin = begin_of(window);
    ivec3 end = min(begin + triple(push.kernel), cells + triple(push.low));
    if (push.mode == 2) {
        begin = max(begin, ivec3(0));
        end = min(end, cells);
    }
    return float(product(max(end - begin, ivec3(0))));
}

#if defined(OP_pool_index)
#if IN == FLOAT32
bool better(uint found, uint best) {
    float a = uintBitsToFloat(found), b = uintBitsToFloat(best);
    return !is_nan(b) && (is_nan(a) || a > b);
}
#elif IN == INT32
bool better(uint found, uint best) { return int(found) > int(best); }
#else
bool better(uint found, uint best) { return found > best; }
#endif

const int NONE = -1;

int flat_position(ivec3 at) { return (at.x * push.cells[1] + at.y) * push.cells[2] + at.z; }

void main() {
    ivec3 windows = triple(push.windows), kernel = triple(push.kernel), cells = triple(push.cells);
    EACH(i, uint(push.count)) {
        int plane = int(i) / product(windows);
        ivec3 begin = begin_of(unravel(int(i) - plane * product(windows), windows));
        int winner = push.turns[0] == 0 ? NONE : int(to[push.to_offset + int(i)]);
        uint best = winner == NONE ? 0u : from[address(plane, unravel(winner, cells))];
        ivec3 cell = unravel(push.turns[0], kernel);
        for (int t = push.turns[0]; t < push.turns[1]; ++t) {
            ivec3 at = begin + cell * triple(push.dilation);
            if (inside(at, cells)) {
                uint found = from[address(plane, at)];
                if (winner == NONE || better(found, best)) {
                    best = found;
                    winner = flat_position(at);
                }
            }
            cell = next(cell, kernel);
        }
        if (winner == NONE && push.turns[1] == product(kernel)) {  // the first cell behind the padding
            ivec3 steps = triple(push.dilation);
            winner = flat_position(begin + max(ivec3(0), (steps - 1 - begin) / steps) * steps);
        }
        to[push.to_offset + int(i)] = uint(winner);
    }
}

#elif defined(OP_avg_pool)
void main() {
    ivec3 windows = triple(push.windows), kernel = triple(push.kernel), cells = triple(push.cells);
    EACH(i, uint(push.count)) {
        int plane = int(i) / product(windows);
        ivec3 window = unravel(int(i) - plane * product(windows), windows), begin = begin_of(window);
        float sum = push.turns[0] == 0 ? 0.0 : uintBitsToFloat(to[push.to_offset + int(i)]);
        ivec3 cell = unravel(push.turns[0], kernel);
        for (int t = push.turns[0]; t < push.turns[1]; ++t) {
            if (inside(begin + cell, cells)) sum += uintBitsToFloat(from[address(plane, begin + cell)]);
            cell = next(cell, kernel);
        }
        if (push.turns[1] == product(kernel)) sum = quotient(sum, share(window));
        to[push.to_offset + int(i)] = floatBitsToUint(sum);
    }
}

#elif defined(OP_avg_pool_input)
void main() {
    ivec3 cells = triple(push.cells), stride = triple(push.stride), kernel = triple(push.kernel);
    ivec3 reach = (kernel + stride - 1) / stride;  // windows over a cell, along each axis
    EACH(i, uint(push.count)) {
        int plane = int(i) / product(cells);
        ivec3 at = unravel(int(i) - plane * product(cells), cells) + triple(push.low);
        float sum = push.turns[0] == 0 ? 0.0 : uintBitsToFloat(to[push.to_offset + int(i)]);
        ivec3 back = unravel(push.turns[0], reach);
        for (int t = push.turns[0]; t < push.turns[1]; ++t) {
            ivec3 window = at / stride - reach + 1 + back;
            bool seen = all(greaterThan(window * stride + kernel, at));
            if (seen && inside(window, triple(push.windows)))
                sum += quotient(uintBitsToFloat(from[address(plane, window)]), share(window));
            back = next(back, reach);
        }
        to[push.to_offset + int(i)] = floatBitsToUint(sum);
    }
}
#endif
