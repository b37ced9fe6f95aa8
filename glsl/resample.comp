#version 450
#extension GL_GOOGLE_include_directive : require
// Planes at another resolution; see tinyadept/ops/resample.py.
//   -DOP_resample         each result takes a cell, or two of each axis
//   -DOP_resample_input   each cell gathers the gradients of the results that took it
//   -DLINEAR=1            two of each axis
// `table` holds for each of the three axes what `taps` says: low, high and share of each result, and for the
// gradient the first result that takes each cell, and one past the last.
#include "grid.glsl"

layout(binding = 0) writeonly buffer To { float to[]; };
layout(binding = 1) readonly buffer From { float from[]; };
layout(binding = 2) readonly buffer Table { int table[]; };

layout(push_constant) uniform Push {
    int count;
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

#ifdef OP_resample
float between(float a, float b, float s) { return a * (1.0 - s) + b * s; }

float line(int at, int start, int x) {
    float a = from[at + low(start, x) * push.from_step[2]];
#if LINEAR
    return between(a, from[at + high(start, 2, x) * push.from_step[2]], share(start, 2, x));
#else
    return a;
#endif
}

float plane(int at, int start_y, int start_x, int y, int x) {
    float a = line(at + low(start_y, y) * push.from_step[1], start_x, x);
#if LINEAR
    if (push.cells[1] == 1) return a;
    float b = line(at + high(start_y, 1, y) * push.from_step[1], start_x, x);
    return between(a, b, share(start_y, 1, y));
#else
    return a;
#endif
}

float value(int index) {
    int row = index / push.results[2], x = index - row * push.results[2];
    int slice = row / push.results[1], y = row - slice * push.results[1];
    int whole = slice / push.results[0], z = slice - whole * push.results[0];
    int start_z = axis_start(0), start_y = axis_start(1), start_x = axis_start(2), at = corner(whole);
    float a = plane(at + low(start_z, z) * push.from_step[0], start_y, start_x, y, x);
#if LINEAR
    if (push.cells[0] == 1) return a;
    float b = plane(at + high(start_z, 0, z) * push.from_step[0], start_y, start_x, y, x);
    return between(a, b, share(start_z, 0, z));
#else
    return a;
#endif
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

float value(int index) {
    int row = index / push.cells[2], x = index - row * push.cells[2];
    int slice = row / push.cells[1], y = row - slice * push.cells[1];
    int whole = slice / push.cells[0], z = slice - whole * push.cells[0];
    int start_z = axis_start(0), start_y = axis_start(1), start_x = axis_start(2), at = corner(whole);
    ivec2 zs = reach(start_z, 0, z), ys = reach(start_y, 1, y), xs = reach(start_x, 2, x);
    float sum = 0.0;
    for (int k = zs.x; k < zs.y; ++k)
        for (int j = ys.x; j < ys.y; ++j) {
            float line = 0.0;
            for (int i = xs.x; i < xs.y; ++i)
                line += weight(start_x, 2, i, x) * from[at + k * push.from_step[0] + j * push.from_step[1]
                                                        + i * push.from_step[2]];
            sum += weight(start_z, 0, k, z) * weight(start_y, 1, j, y) * line;
        }
    return sum;
}
#endif

void main() {
    EACH(index, uint(push.count)) to[push.to_offset + int(index)] = value(int(index));
}
