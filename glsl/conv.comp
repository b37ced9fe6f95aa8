#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Convolution and its two gradients, each as a product of matrices that are never formed: out = a @ b, group by group.
//
//                 rows      columns               depth                    a              b
//   conv          channel   sample, position      channel, window cell     w (O, C/G, K)  x (N, C, ...)
//   conv_input    channel   sample, input cell    channel, window cell     w (O, C/G, K)  g (N, O, ...)
//   conv_weight   channel   channel, window cell  sample, position         g (N, O, ...)  x (N, C, ...)
//
// A column is (outer, place), a depth is (inner, tap); places, taps and cells of b have three coordinates each. A place
// and a tap together say which cell of b is met:
//   conv, conv_weight  place * place_step + tap * tap_step - low
//   conv_input         (place + low - tap * tap_step) / place_step, where that leaves no rest
//
//   -DOP_conv, -DOP_conv_input, -DOP_conv_weight
//   -DTYPE=float -DTYPE4=vec4, or int and ivec4;  -DMASK=255 for uint8
//   -DTILED=1          64 x 64 results a workgroup, by way of shared memory: for GPUs
//   -DTILED=0          ROWS x COLUMNS results a lane, without barriers: for CPUs, and for few rows

layout(push_constant) uniform Push {
    int rows, outers, inners, groups;
    int places[3], taps[3], cells[3];
    uint halves[5];               // 16 bits each: place_step[3], tap_step[3], low[3]
    uint splits;                  // 16 bits each: parts of the taps, parts of inner
    int a, a_row, a_inner, a_tap[3];
    int b, b_outer, b_inner, b_cell[3];
    int to;
} push;

layout(binding = 0) writeonly buffer To { uint to[]; };
layout(binding = 1) readonly buffer A { TYPE a[]; };
layout(binding = 2) readonly buffer B { TYPE b[]; };

int half_at(int i) { return bitfieldExtract(int(push.halves[i / 2]), i % 2 * 16, 16); }
ivec3 place_steps() { return ivec3(half_at(0), half_at(1), half_at(2)); }
ivec3 tap_steps() { return ivec3(half_at(3), half_at(4), half_at(5)); }
ivec3 lows() { return ivec3(half_at(6), half_at(7), half_at(8)); }
ivec3 triple(int v[3]) { return ivec3(v[0], v[1], v[2]); }
int product(ivec3 v) { return v.x * v.y * v.z; }
int dot_of(ivec3 u, ivec3 v) { return u.x * v.x + u.y * v.y + u.z * v.z; }

ivec3 unravel(int i, ivec3 lengths) {
    int row = i / lengths.z, plane = row / lengths.y;
    return ivec3(plane, row - plane * lengths.y, i - row * lengths.z);
}

// The part of a sum that does not depend on the tap, and what a tap adds.
#ifdef OP_conv_input
ivec3 place_part(ivec3 place) { return place + lows(); }
ivec3 tap_part(ivec3 tap) { return -tap * tap_steps(); }
#else
ivec3 place_part(ivec3 place) { return place * place_steps() - lows(); }
ivec3 tap_part(ivec3 tap) { return tap * tap_steps(); }
#endif

// Where the cell that a place and a tap meet lies, from the first one on; -1 where there is none.
int met(ivec3 sum) {
    ivec3 cells = triple(push.cells);
    bool inside = all(greaterThanEqual(sum, ivec3(0)));
#ifdef OP_conv_input
    ivec3 steps = place_steps(), cell = sum;
    if (steps != ivec3(1)) {
        cell = sum / steps;
        inside = inside && cell * steps == sum;
    }
#else
    ivec3 cell = sum;
#endif
    return inside && all(lessThan(cell, cells)) ? dot_of(cell, triple(push.b_cell)) : -1;
}

#ifdef OP_conv_input
int a_group() { return push.inners * push.a_inner; }
#else
int a_group() { return push.rows * push.a_row; }
#endif
#ifdef OP_conv_weight
int b_group() { return push.outers * push.b_outer; }
int target(int group, int row, int column) {
    return (group * push.rows + row) * push.outers * product(triple(push.places)) + column;
}
#else
int b_group() { return push.inners * push.b_inner; }
int target(int group, int row, int column) {
    int size = product(triple(push.places)), outer = column / size;
    return (outer * push.groups * push.rows + group * push.rows + row) * size + column - outer * size;
}
#endif
