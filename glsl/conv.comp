#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Convolution and its two gradients, each as a product of matrices that are never formed: out = a @ b,
// group by group.
//
//                 rows      columns               depth                    a              b
//   conv          channel   sample, position      channel, window cell     w (O, C/G, K)  x (N, C, ...)
//   conv_input    channel   sample, input cell    channel, window cell     w (O, C/G, K)  g (N, O, ...)
//   conv_weight   channel   channel, window cell  sample, position         g (N, O, ...)  x (N, C, ...)
//
// A column is (outer, place), a depth is (inner, tap); places, taps and cells of b have three coordinates
// each. A place and a tap together say which cell of b is met:
//   conv, conv_weight  place * place_step + tap * tap_step - low
//   conv_input         (place + low - tap * tap_step) / place_step, where that leaves no rest
//
//   -DOP_conv, -DOP_conv_input, -DOP_conv_weight
//   -DTYPE=float -DTYPE4=vec4, or int and ivec4;  -DMASK=255 for uint8, else 0
//   -DSTRIDED=1 where a step of the places is not 1
//   -DROWS -DCOLUMNS   results of a lane;  -DACTIVATED=1 where an activation is applied, else 0
// No shared memory and no barriers: for CPUs, and for few rows; conv_tiles.comp is for GPUs.

layout(push_constant) uniform Push {
    int rows, outers, inners, groups;
    int places[3], taps[3], cells[3];
    uint halves[5];               // 16 bits each: place_step[3], tap_step[3], low[3]
    uint splits;                  // 16 bits each: parts of the taps, parts of inner
    int a, a_row, a_inner, a_tap[3];
    int b, b_outer, b_inner;      // cells lie one after another
    int bias, bias_step;          // bias -1: none
    int to, pitch;                // words between parts
} push;

#define ACTIVATION_ID 1
#include "activation.glsl"

layout(binding = 0) buffer To { TYPE to[]; };
layout(binding = 1) readonly buffer A { TYPE a[]; };
layout(binding = 2) readonly buffer B { TYPE b[]; };
layout(binding = 3) readonly buffer Bias { TYPE bias[]; };

int half_at(int i) { return bitfieldExtract(int(push.halves[i / 2]), i % 2 * 16, 16); }
ivec3 place_steps() { return ivec3(half_at(0), half_at(1), half_at(2)); }
ivec3 tap_steps() { return ivec3(half_at(3), half_at(4), half_at(5)); }
ivec3 lows() { return ivec3(half_at(6), half_at(7), half_at(8)); }
ivec3 triple(int v[3]) { return ivec3(v[0], v[1], v[2]); }
int product(ivec3 v) { return v.x * v.y * v.z; }
int dot_of(ivec3 u, ivec3 v) { return u.x * v.x + u.y * v.y + u.z * v.z; }
int flat_cell(ivec3 cell) { return (cell.x * push.cells[1] + cell.y) * push.cells[2] + cell.z; }

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

// Where the cell that a place and a tap meet lies, from the first one on; NOWHERE where there is none.
const int NOWHERE = 1 << 31;

int met(ivec3 sum) {
    ivec3 cells = triple(push.cells);
    bool inside = all(greaterThanEqual(sum, ivec3(0)));
#if defined(OP_conv_input) && STRIDED
    ivec3 cell = sum / place_steps();
    inside = inside && cell * place_steps() == sum;
#else
    ivec3 cell = sum;
#endif
    return inside && all(lessThan(cell, cells)) ? flat_cell(cell) : NOWHERE;
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

#if MASK
#define DONE(v) ((v) & MASK)
#else
#define DONE(v) (v)
#endif

// The piece of `length` that part `at` of `parts` has.
ivec2 piece(int length, int at, int parts) {
    int each = (length + parts - 1) / parts;
    return ivec2(at * each, min(length, (at + 1) * each));
}

int tap_parts() { return int(push.splits & 0xFFFFu); }
int inner_parts() { return int(push.splits >> 16); }

// A place meets no cell for some taps, whose products are 0; but 0 times infinity is not. So a sum of
// conv_input that is not finite is made again, of what is met alone.
#if defined(OP_conv_input) && FLOATING
#define RECHECKED 1
bool is_finite(float x) { return (floatBitsToUint(x) & 0x7F800000u) != 0x7F800000u; }
#endif

void put(int part, int group, int row, int column, TYPE sum) {
    to[push.to + part * push.pitch + target(group, row, column)] = DONE(sum);
}

layout(local_size_x_id = 0) in;

// Rows belong to the workgroup, so that all its lanes load the same words of a at once; columns belong to
// lanes.
struct Block {
    int a, row;
    ivec3 places[COLUMNS];
    int from[COLUMNS];
    ivec2 taps, inners;  // what this part has of them
};

TYPE sums[ROWS][COLUMNS];

// What one tap adds. Where `strict`, products of what is not met are left out, also those that would be NaN.
void add_tap(Block block, ivec3 tap, const bool strict) {
    int cells[COLUMNS], at = block.a + dot_of(tap, triple(push.a_tap));
    [[unroll]] for (int c = 0; c < COLUMNS; ++c) cells[c] = met(block.places[c] + tap_part(tap));
    for (int i = block.inners.x; i < block.inners.y; ++i) {
        TYPE right[COLUMNS];
        [[unroll]] for (int c = 0; c < COLUMNS; ++c)
            right[c] = cells[c] != NOWHERE ? b[block.from[c] + cells[c] + i * push.b_inner] : TYPE(0);
        [[unroll]] for (int r = 0; r < ROWS; ++r) {
            TYPE left = a[at + min(block.row + r, push.rows - 1) * push.a_row + i * push.a_inner];
            [[unroll]] for (int c = 0; c < COLUMNS; ++c)
                if (!strict || cells[c] != NOWHERE) sums[r][c] += left * right[c];
        }
    }
}

void add_taps(Block block, const bool strict) {
    ivec3 taps = triple(push.taps), tap = unravel(block.taps.x, taps);
    [[unroll]] for (int r = 0; r < ROWS; ++r)
        [[unroll]] for (int c = 0; c < COLUMNS; ++c) sums[r][c] = TYPE(0);
    for (int t = block.taps.x; t < block.taps.y; ++t) {
        add_tap(block, tap, strict);
        ++tap.z;
        if (tap.z == taps.z) {
            tap.z = 0;
            ++tap.y;
            if (tap.y == taps.y) tap = ivec3(tap.x + 1, 0, 0);
        }
    }
}

void run_block(int part, int group, int row, int column) {
    Block block;
    int size = product(triple(push.places)), width = push.outers * size, lanes = int(gl_WorkGroupSize.x);
    block.a = push.a + group * a_group();
    block.row = row;
    [[unroll]] for (int c = 0; c < COLUMNS; ++c) {
        int mine = min(column + c * lanes, width - 1), outer = mine / size;
        block.places[c] = place_part(unravel(mine - outer * size, triple(push.places)));
        block.from[c] = push.b + group * b_group() + outer * push.b_outer;
    }
    block.taps = piece(product(triple(push.taps)), part % tap_parts(), tap_parts());
    block.inners = piece(push.inners, part / tap_parts(), inner_parts());
    add_taps(block, false);
#if RECHECKED
    bool finite = true;
    [[unroll]] for (int r = 0; r < ROWS; ++r)
        [[unroll]] for (int c = 0; c < COLUMNS; ++c) finite = finite && is_finite(sums[r][c]);
    if (!finite) add_taps(block, true);
#endif
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
        TYPE more = TYPE(0);
        if (push.bias >= 0 && part == 0)
            more = bias[push.bias + (group * push.rows + min(row + r, push.rows - 1)) * push.bias_step];
        [[unroll]] for (int c = 0; c < COLUMNS; ++c)
            if (row + r < push.rows && column + c * lanes < width)
                put(part, group, row + r, column + c * lanes, sums[r][c] + more);
    }
#if ACTIVATED  // in a loop of its own: CPU drivers would take seconds to compile one function so many times
    for (int i = 0; i < ROWS * COLUMNS; ++i) {
        int r = row + i / COLUMNS, at = push.to + target(group, r, column + i % COLUMNS * lanes);
        if (r < push.rows && column + i % COLUMNS * lanes < width) to[at] = activated(to[at]);
    }
#endif
}

void main() {
    int width = push.outers * product(triple(push.places)), span = int(gl_WorkGroupSize.x) * COLUMNS;
    int down = (push.rows + ROWS - 1) / ROWS, across = (width + span - 1) / span;
    int parts = tap_parts() * inner_parts(), blocks = down * across * push.groups * parts;
    for (int t = int(gl_WorkGroupID.x); t < blocks; t += int(gl_NumWorkGroups.x)) {
        int column = t / down % across * span + int(gl_LocalInvocationID.x);
        run_block(t / down / across / push.groups, t / down / across % push.groups, t % down * ROWS, column);
    }
}
