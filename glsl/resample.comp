#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Planes at another resolution; see tinyadept/ops/resample.py.
//   -DOP_resample         each result takes a cell, or two of each axis
//   -DOP_resample_input   each cell gathers the gradients of the results that took it
//   -DLINEAR=1            two of each axis
//   -DWIDTH=4             a lane makes four neighbours of the last axis; else 1
// `table` holds for each of the three axes what `taps` says: low, high and share of each result, and for the
// gradient the first result that takes each cell, and one past the last.
#include "grid.glsl"

#if WIDTH == 4
#define WORDS vec4
#else
#define WORDS float
#endif
layout(binding = 0) writeonly buffer To { WORDS to[]; };
layout(binding = 1) readonly buffer From { float from[]; };
layout(binding = 2) readonly buffer Table { int table[]; };

layout(push_constant) uniform Push {
    int count;  // of words, or of fours
    int results[3], cells[3];
    int from_offset, from_sample, from_channel, from_step[3], channels;
    int to_offset, first_row;
} push;

int axis_start(int axis) {  // of its part of the table
    int at = push.first_row;
    for (int k = 0; k < axis; ++k) at += 3 * push.results[k] + 2 * push.cells[k];
    return at;
}

int low(int start, int i) { return table[start + i]; }
int high(int start, int axis, int i) { return table[start + push.results[axis] + i]; }
float share(int start, int axis, int i) { return intBitsToFloat(table[start + 2 * push.results[axis] + i]); }

int corner(int plane) {
    int sample_ = plane / push.channels;
    return push.from_offset + sample_ * push.from_sample + (plane - sample_ * push.channels) * push.from_channel;
}

// Sample and channel as one, then the place along each axis.
ivec4 unravel(int index, int width, int height, int depth) {
    uint row = uint(index) / uint(width), slice = row / uint(height), whole = slice / uint(depth);
    return ivec4(whole, slice - whole * depth, row - slice * height, index - row * width);
}

#if WIDTH == 4
#define SET(words, k, x) words[k] = x
#else
#define SET(words, k, x) words = x
#endif

#ifdef OP_resample
float between(float a, float b, float s) { return a * (1.0 - s) + b * s; }

struct Taps { int low, high; float share; };

Taps taps(int start, int axis, int i, int step) {
#if LINEAR
    return Taps(low(start, i) * step, high(start, axis, i) * step, share(start, axis, i));
#else
    return Taps(low(start, i) * step, 0, 0.0);
#endif
}

float line(int at, Taps x) {
#if LINEAR
    return between(from[at + x.low], from[at + x.high], x.share);
#else
    return from[at + x.low];
#endif
}

float plane(int at, Taps y, Taps x) {
    float a = line(at + y.low, x);
#if LINEAR
    if (push.cells[1] > 1) a = between(a, line(at + y.high, x), y.share);
#endif
    return a;
}

WORDS value(int index) {
    ivec4 place = unravel(index, push.results[2] / WIDTH, push.results[1], push.results[0]);
    int start_x = axis_start(2), at = corner(place.x);
    Taps z = taps(axis_start(0), 0, place.y, push.from_step[0]);
    Taps y = taps(axis_start(1), 1, place.z, push.from_step[1]);
    WORDS found;
    [[unroll]] for (int k = 0; k < WIDTH; ++k) {
        Taps x = taps(start_x, 2, place.w * WIDTH + k, push.from_step[2]);
        float a = plane(at + z.low, y, x);
#if LINEAR
        if (push.cells[0] > 1) a = between(a, plane(at + z.high, y, x), z.share);
#endif
        SET(found, k, a);
    }
    return found;
}
#else
ivec2 reach(int start, int axis, int cell) {
    int at = start + 3 * push.results[axis] + cell;
    return ivec2(table[at], table[at + push.cells[axis]]);
}

float weight(int start, int axis, int i, int cell) {
#if LINEAR
    float s = share(start, axis, i);
    return (low(start, i) == cell ? 1.0 - s : 0.0) + (high(start, axis, i) == cell ? s : 0.0);
#else
    return 1.0;
#endif
}

WORDS value(int index) {
    ivec4 place = unravel(index, push.cells[2] / WIDTH, push.cells[1], push.cells[0]);
    int start_z = axis_start(0), start_y = axis_start(1), start_x = axis_start(2), at = corner(place.x);
    ivec2 zs = reach(start_z, 0, place.y), ys = reach(start_y, 1, place.z);
    WORDS found;
    [[unroll]] for (int n = 0; n < WIDTH; ++n) {
        int x = place.w * WIDTH + n;
        ivec2 xs = reach(start_x, 2, x);
        float sum = 0.0;
        for (int k = zs.x; k < zs.y; ++k)
            for (int j = ys.x; j < ys.y; ++j) {
                int row = at + k * push.from_step[0] + j * push.from_step[1];
                float line = 0.0;
                for (int i = xs.x; i < xs.y; ++i)
                    line += weight(start_x, 2, i, x) * from[row + i * push.from_step[2]];
                sum += weight(start_z, 0, k, place.y) * weight(start_y, 1, j, place.z) * line;
            }
        SET(found, n, sum);
    }
    return found;
}
#endif

void main() {
    EACH(index, uint(push.count)) to[push.to_offset / WIDTH + int(index)] = value(int(index));
}
