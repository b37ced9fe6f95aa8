#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Convolution and its two gradients on GPUs: out = a @ b, group by group, of matrices that are never formed. The
// tiles and the inner loop are those of matmul.comp.
//
//                 rows      columns               depth                    a                    b
//   conv          channel   sample, position      window cell, channel     w, see below         x (N, C, ...)
//   conv_input    channel   sample, input cell    window cell, channel     w, see below         g (N, O, ...)
//   conv_weight   channel   channel, window cell  sample, position         g (N, O, ...)        x (N, C, ...)
//
// A depth is (turn, inner): all inner ones of a turn are walked through in stages of eight, of which the last
// may reach beyond the end. So what a tap means is worked out once a turn. A column is (outer, place). A place
// and a tap together say which cell of b is met, as conv.comp has it. With strides, conv_input goes through
// its places phase by phase: those that leave the same rest meet the same taps.
//
//   -DOP_conv, -DOP_conv_input, -DOP_conv_weight
//   -DTYPE=float -DTYPE4=vec4, or int and ivec4;  -DMASK=255 for uint8, else 0
//   -DQUADS_N -DQUADS_M -DWARPS_N -DWARPS_M   as in matmul.comp;  -DACTIVATED=1 where an activation is applied
//   -DTEAMS=4           so many teams of lanes share a tile: each sums a part of the depth, and they are added up;
//                       tiles of 32 x 32 by 32 lanes, whose sums fit where the sides were
//   -DA_MODE=ALONG      (G, tap, inner, row), neighbours of a row on 16 bytes, inner a multiple of 8
//            DEEP       neighbours of the inner axis on 16 bytes; ONE_BY_ONE likewise, but not on 16 bytes
//   -DB_MODE=GATHER     a lane has one column, or two, and all depths of a stage
//            ALONG      single cells, no padding: four neighbours of the places on 16 bytes
//            DEEP       conv_weight: a lane has a column, and four depths of it
//   -DSTRIDED=1         conv_input with a step of places that is not 1
//   -DRAGGED=1          the inner axis is no multiple of 8
//   -DIN_ROWS=1         conv_weight: four positions always lie in one row, =2: a whole stage does
#define DEEP 0
#define ALONG 1
#define ONE_BY_ONE 2
#define GATHER 3

layout(push_constant) uniform Push {
    int rows, outers, inners, groups;
    int places[3], taps[3], cells[3];
    uint halves[5];            // 16 bits each: place_step[3], tap_step[3], low[3], parts of the depth
    int a, a_group, a_row, a_inner;  // a_row of ALONG: words between depths
    int b, b_group, b_outer, b_inner;
    int bias, bias_step;       // bias -1: none
    int to, pitch;             // words between parts
} push;

#define ACTIVATION_ID 0
#include "activation.glsl"

layout(binding = 0) writeonly buffer To { TYPE to[]; };
layout(binding = 0) writeonly buffer To4 { TYPE4 to4[]; };
layout(binding = 1) readonly buffer A { TYPE a[]; };
layout(binding = 1) readonly buffer A4 { TYPE4 a4[]; };
layout(binding = 2) readonly buffer B { TYPE b[]; };
layout(binding = 2) readonly buffer B4 { TYPE4 b4[]; };
layout(binding = 3) readonly buffer Bias { TYPE bias[]; };

const int ROWS = 16 * QUADS_N * WARPS_N, COLUMNS = 32 * QUADS_M * WARPS_M, DEPTH = 8;  // of a tile
const int LANES = 32 * WARPS_N * WARPS_M;
const int PITCH_A = ROWS + 4, PITCH_B = COLUMNS + 4;
const int NOWHERE = 1 << 31;

layout(local_size_x = 32 * WARPS_N * WARPS_M, local_size_y = TEAMS) in;
shared TYPE4 tile_a[TEAMS * 2 * DEPTH * PITCH_A / 4];  // [team][stage][depth][row]
shared TYPE4 tile_b[TEAMS * 2 * DEPTH * PITCH_B / 4];  // [team][stage][depth][column]

int team() { return int(gl_LocalInvocationID.y); }

vec4 mad(float x, vec4 y, vec4 z) { return fma(vec4(x), y, z); }
ivec4 mad(int x, ivec4 y, ivec4 z) { return x * y + z; }
#if MASK
#define DONE(v) ((v) & MASK)
#else
#define DONE(v) (v)
#endif

int half_at(int i) { return bitfieldExtract(int(push.halves[i / 2]), i % 2 * 16, 16); }
ivec3 place_steps() { return ivec3(half_at(0), half_at(1), half_at(2)); }
ivec3 tap_steps() { return ivec3(half_at(3), half_at(4), half_at(5)); }
ivec3 lows() { return ivec3(half_at(6), half_at(7), half_at(8)); }
int parts() { return half_at(9); }
ivec3 triple(int v[3]) { return ivec3(v[0], v[1], v[2]); }
int product(ivec3 v) { return v.x * v.y * v.z; }
int flat_cell(ivec3 cell) { return (cell.x * push.cells[1] + cell.y) * push.cells[2] + cell.z; }
bool inside(ivec3 cell) { return all(lessThan(uvec3(cell), uvec3(triple(push.cells)))); }

ivec3 unravel(int i, ivec3 lengths) {
    int row = i / lengths.z, plane = row / lengths.y;
    return ivec3(plane, row - plane * lengths.y, i - row * lengths.z);
}

// What the columns of a tile have in common: place i of `places` is the first one + i * step, and tap i of
// `taps` likewise. The cell met is start + place * place_cells + tap * tap_cells.
struct Phase {
    ivec3 places, place_first, place_step;
    ivec3 taps, tap_first, tap_step;
    ivec3 start, place_cells, tap_cells;
};

Phase phase_of(int number) {
    Phase p;
    p.places = triple(push.places), p.place_first = ivec3(0), p.place_step = ivec3(1);
    p.taps = triple(push.taps), p.tap_first = ivec3(0), p.tap_step = ivec3(1);
#ifdef OP_conv_input
    p.start = lows(), p.place_cells = ivec3(1), p.tap_cells = -tap_steps();
#if STRIDED
    ivec3 steps = place_steps(), rest = unravel(number, steps);
    p.place_first = rest, p.place_step = steps;
    p.places = (p.places - rest + steps - 1) / steps;
    [[unroll]] for (int axis = 0; axis < 3; ++axis) {  // the first two taps that leave no rest
        int step = steps[axis], from = rest[axis] + p.start[axis], first = 0, second;
        // What % makes of negative numbers is up to the driver.
        while (first < step && abs(from + first * p.tap_cells[axis]) % step != 0) ++first;
        second = first + 1;
        while (second < first + step && (second - first) * -p.tap_cells[axis] % step != 0) ++second;
        p.tap_first[axis] = first, p.tap_step[axis] = second - first;
        p.taps[axis] = first < step ? max(0, (p.taps[axis] - first + second - first - 1) / (second - first)) : 0;
        p.start[axis] = (from + first * p.tap_cells[axis]) / step;
        p.tap_cells[axis] = (second - first) * p.tap_cells[axis] / step;
    }
#endif
#else
    p.start = -lows(), p.place_cells = place_steps(), p.tap_cells = tap_steps();
#endif
    return p;
}

int phases() {
#if STRIDED
    return product(place_steps());
#else
    return 1;
#endif
}

// The most columns that any phase has.
int width_of_all() {
#if STRIDED
    return push.outers * product((triple(push.places) + place_steps() - 1) / place_steps());
#else
    return push.outers * product(triple(push.places));
#endif
}

// Where a lane's load lies in a tile: how far along its edge, and how deep.
ivec2 quad(int load, int edge, int mode) {
    int x = int(gl_LocalInvocationID.x) + load * LANES;
    return mode == ALONG ? ivec2(x % (edge / 4) * 4, x / (edge / 4)) : ivec2(x / 2, x % 2 * 4);
}

ivec2 b_quad(int load) {
#if B_MODE == GATHER
    return ivec2(int(gl_LocalInvocationID.x) + load / 2 * LANES, load % 2 * 4);
#else
    return quad(load, COLUMNS, B_MODE);
#endif
}

TYPE4 load_a(int at, int left) {  // `left` depths are there
#if RAGGED && A_MODE != ALONG
#if A_MODE == DEEP
    return left > 0 ? a4[at >> 2] : TYPE4(0);
#else
    TYPE4 v = TYPE4(0);
    if (left > 0) v.x = a[at];
    if (left > 1) v.y = a[at + 1];
    if (left > 2) v.z = a[at + 2];
    if (left > 3) v.w = a[at + 3];
    return v;
#endif
#elif A_MODE == ONE_BY_ONE
    return TYPE4(a[at], a[at + 1], a[at + 2], a[at + 3]);
#else
    return a4[at >> 2];
#endif
}

TYPE4 gather(int at, int left) {
    TYPE4 v = TYPE4(0);
#if RAGGED
    if (left > 0) v.x = b[at];
    if (left > 1) v.y = b[at + push.b_inner];
    if (left > 2) v.z = b[at + 2 * push.b_inner];
    if (left > 3) v.w = b[at + 3 * push.b_inner];
#else
    v = TYPE4(b[at], b[at + push.b_inner], b[at + 2 * push.b_inner], b[at + 3 * push.b_inner]);
#endif
    return v;
}

// Four cells of conv_weight's b: `from` is the sample's channel, `position` that of the stage, as `tap` is.
TYPE4 load_deep(int from, ivec3 place, int position, ivec3 tap, int deep, int length, ivec3 step) {
    TYPE4 v = TYPE4(0);
    if (from == NOWHERE) return v;
    ivec3 positions = triple(push.taps);
#if IN_ROWS
#if IN_ROWS == 2
    ivec3 cell = place + (tap + ivec3(0, 0, deep)) * step;
#else
    ivec3 cell = place + unravel(position + deep, positions) * step;
#endif
    if (position + deep >= length || uint(cell.x) >= uint(push.cells[0]) || uint(cell.y) >= uint(push.cells[1]))
        return v;
    int at = from + flat_cell(cell);
    uint end = uint(push.cells[2]);
    if (uint(cell.z) < end) v.x = b[at];
    if (uint(cell.z + step.z) < end) v.y = b[at + step.z];
    if (uint(cell.z + 2 * step.z) < end) v.z = b[at + 2 * step.z];
    if (uint(cell.z + 3 * step.z) < end) v.w = b[at + 3 * step.z];
#else
    [[unroll]] for (int j = 0; j < 4; ++j) {
        ivec3 cell = place + unravel(position + deep + j, positions) * step;
        if (position + deep + j < length && inside(cell)) v[j] = b[from + flat_cell(cell)];
    }
#endif
    return v;
}

void store_a(int stage, ivec2 at, TYPE4 v) {
    int cell = ((team() * 2 + stage) * DEPTH + at.y) * PITCH_A + at.x;
#if A_MODE == ALONG
    tile_a[cell >> 2] = v;
#else
    [[unroll]] for (int j = 0; j < 4; ++j) tile_a[(cell >> 2) + j * (PITCH_A / 4)][cell & 3] = v[j];
#endif
}

void store_b(int stage, ivec2 at, TYPE4 v) {
    int cell = ((team() * 2 + stage) * DEPTH + at.y) * PITCH_B + at.x;
#if B_MODE == ALONG
    tile_b[cell >> 2] = v;
#else
    [[unroll]] for (int j = 0; j < 4; ++j) tile_b[(cell >> 2) + j * (PITCH_B / 4)][cell & 3] = v[j];
#endif
}

ivec2 lane_of_32() {
    int x = int(gl_LocalInvocationID.x);
    return ivec2((x >> 1 & 1) | (x >> 2 & 2), (x & 1) | (x >> 1 & 2) | (x >> 2 & 4));
}

// Where in the result a column begins, at row 0 of a group; NOWHERE beyond the last one.
int spot(Phase p, int column) {
    int size = product(p.places), outer = column / size;
    if (outer >= push.outers) return NOWHERE;
#ifdef OP_conv_weight
    return column;
#else
    ivec3 place = p.place_first + unravel(column - outer * size, p.places) * p.place_step;
    ivec3 all = triple(push.places);
    return outer * push.groups * push.rows * product(all) + (place.x * all.y + place.y) * all.z + place.z;
#endif
}

// Words between rows of the result.
int row_step() {
#ifdef OP_conv_weight
    return push.outers * product(triple(push.places));
#else
    return product(triple(push.places));
#endif
}

void write(int base, int row, ivec4 spots, TYPE4 v, TYPE4 more) {
    if (row >= push.rows) return;
    v += more;
    base += row * row_step();
#if !STRIDED
    if ((row_step() & 3) == 0) {  // four neighbours, which begin on 16 bytes
        if (spots.x != NOWHERE) to4[(base + spots.x) >> 2] = activated(DONE(v));
        return;
    }
#endif
    v = activated(DONE(v));
    if (spots.x != NOWHERE) to[base + spots.x] = v.x;
    if (spots.y != NOWHERE) to[base + spots.y] = v.y;
    if (spots.z != NOWHERE) to[base + spots.z] = v.z;
    if (spots.w != NOWHERE) to[base + spots.w] = v.w;
}

// As in matmul.comp, what a lane loads and sums has names. A lane has two loads of b for each of its columns.
#define WIDER (QUADS_M == 2 * WARPS_N)
#if QUADS_N > WARPS_M
#define EACH_A(DO) DO(0) DO(1)
#else
#define EACH_A(DO) DO(0)
#endif
#if WIDER
#define EACH_B(DO) DO(0) DO(1) DO(2) DO(3)
#define EACH_OWN(DO) DO(0, 0, 1) DO(1, 2, 3)
#else
#define EACH_B(DO) DO(0) DO(1)
#define EACH_OWN(DO) DO(0, 0, 1)
#endif
#if QUADS_M == 1
#define EACH_COLUMN(DO, i, e) DO(i, e, 0)
#define EACH_FOUR(DO) DO(0)
#else
#define EACH_COLUMN(DO, i, e) DO(i, e, 0) DO(i, e, 1)
#define EACH_FOUR(DO) DO(0) DO(1)
#endif
#define EACH_ROW(DO, i) \
    EACH_COLUMN(DO, i, 0) EACH_COLUMN(DO, i, 1) EACH_COLUMN(DO, i, 2) EACH_COLUMN(DO, i, 3)
#if QUADS_N == 1
#define EACH_RESULT(DO) EACH_ROW(DO, 0)
#elif QUADS_N == 2
#define EACH_RESULT(DO) EACH_ROW(DO, 0) EACH_ROW(DO, 1)
#else
#define EACH_RESULT(DO) EACH_ROW(DO, 0) EACH_ROW(DO, 1) EACH_ROW(DO, 2) EACH_ROW(DO, 3)
#endif

const bool ALL_LOAD = 2 * ROWS % LANES == 0;  // or the first lanes alone load a

#if A_MODE == ALONG
#define FIRST_A(i) \
    ivec2 quad_a##i = quad(i, ROWS, A_MODE); \
    int base_a##i = push.a + group * push.a_group + quad_a##i.y * push.a_row + \
                    min(corner.x + quad_a##i.x, push.a_row - 4); \
    int at_a##i = 0; \
    TYPE4 next_a##i;
#define TURN_A(i) at_a##i = base_a##i + (turn_a + inner) * push.a_row;
#define NEXT_A(i) at_a##i += DEPTH * push.a_row;
#else
#define FIRST_A(i) \
    ivec2 quad_a##i = quad(i, ROWS, A_MODE); \
    int base_a##i = push.a + group * push.a_group + min(corner.x + quad_a##i.x, push.rows - 1) * push.a_row + \
                    quad_a##i.y; \
    int at_a##i = 0; \
    TYPE4 next_a##i;
#define TURN_A(i) at_a##i = base_a##i + turn * push.a_inner + inner;
#define NEXT_A(i) at_a##i += DEPTH;
#endif
#define LOAD_A(i) if (ALL_LOAD || lane < 2 * ROWS) next_a##i = load_a(at_a##i, length - inner - quad_a##i.y);
#define STORE_A(i) if (ALL_LOAD || lane < 2 * ROWS) store_a(stage, quad_a##i, next_a##i);
#define FIRST_B(i) \
    ivec2 quad_b##i = b_quad(i); \
    TYPE4 next_b##i;
#define STORE_B(i) store_b(stage, quad_b##i, next_b##i);

// Of the first column of a load: the channel (or sample) that it meets, and the cell for a tap of zeros.
#define COLUMN(k, first) \
    int outer##k = (corner.y + quad_b##first.x) / size; \
    int from##k = outer##k < push.outers ? push.b + group * push.b_group + outer##k * push.b_outer : NOWHERE; \
    ivec3 place##k = p.start + p.place_cells * \
                     unravel(corner.y + quad_b##first.x - outer##k * size, p.places);
#if B_MODE == GATHER
#define FIRST_COLUMN(k, first, second) COLUMN(k, first) int at_b##k = NOWHERE;
#define TURN_B(k, first, second) { \
        ivec3 cell = place##k + tap * p.tap_cells; \
        bool met = inside(cell) && from##k != NOWHERE; \
        at_b##k = met ? from##k + flat_cell(cell) + inner * push.b_inner : NOWHERE; \
    }
#define NEXT_B(k, first, second) if (at_b##k != NOWHERE) at_b##k += DEPTH * push.b_inner;
#define LOAD_B(k, first, second) \
    next_b##first = TYPE4(0), next_b##second = TYPE4(0); \
    if (at_b##k != NOWHERE) { \
        next_b##first = gather(at_b##k, length - inner); \
        next_b##second = gather(at_b##k + 4 * push.b_inner, length - inner - 4); \
    }
#define EACH_LOAD(DO) EACH_OWN(DO)
#else
#define EACH_LOAD(DO) EACH_B(DO)
#define FIRST_COLUMN(k) COLUMN(k, k) int at_b##k = NOWHERE;
#if B_MODE == ALONG
#define TURN_B(k) \
    at_b##k = (from##k == NOWHERE ? push.b : from##k + flat_cell(place##k)) + (inner + quad_b##k.y) * push.b_inner;
#define NEXT_B(k) at_b##k += DEPTH * push.b_inner;
#define LOAD_B(k) next_b##k = b4[at_b##k >> 2];
#else
#define TURN_B(k) at_b##k = from##k == NOWHERE ? NOWHERE : from##k + turn * push.b_inner;
#define NEXT_B(k)
#define LOAD_B(k) next_b##k = load_deep(at_b##k, place##k, inner, tap, quad_b##k.y, length, p.tap_cells);
#endif
#endif

#define ZERO(i, e, j) TYPE4 sum##i##e##j = TYPE4(0);
#define MULTIPLY(i, e, j) sum##i##e##j = mad(left[i][e], right[j], sum##i##e##j);
#define SPOTS(j) ivec4 spots##j = ivec4(spot(p, corner.y + mine.y + j * 32), \
    spot(p, corner.y + mine.y + j * 32 + 1), spot(p, corner.y + mine.y + j * 32 + 2), \
    spot(p, corner.y + mine.y + j * 32 + 3));
#define WRITE(i, e, j) write(base, corner.x + mine.x + i * 16 + e, spots##j, sum##i##e##j, \
    TYPE4(biased ? bias[push.bias + (group * push.rows + min(corner.x + mine.x + i * 16 + e, push.rows - 1)) \
                        * push.bias_step] : TYPE(0)));

// The sums of all teams lie where the sides of the tile were; each lane then finishes its share of them, so that
// the code for that is there once: what a short dispatch takes is largely reading its code.
#if TEAMS > 1
#define LEFT_0 tile_a
#define LEFT_1 tile_b
#define LEAVE(i, e, j) LEFT_##i[team() * (2 * DEPTH * PITCH_A / 4) + e * LANES + lane] = sum##i##e##j;

TYPE4 sum_of_teams(int n, int lane) {  // of row n of a lane
    int at = n % 4 * LANES + lane;
    TYPE4 sum = TYPE4(0);
    [[unroll]] for (int of = 0; of < TEAMS; ++of) {
        sum += n < 4 ? tile_a[at] : tile_b[at];
        at += 2 * DEPTH * PITCH_A / 4;
    }
    return sum;
}
#endif

#ifdef OP_conv_weight  // the tap is where a stage begins
#define TURN { \
        tap = unravel(inner, p.taps); \
        EACH_A(TURN_A) \
        EACH_LOAD(TURN_B) \
    }
#define NEXT_TAP tap.z += DEPTH; \
    if (tap.z >= p.taps.z) { \
        tap.z = 0, ++tap.y; \
        if (tap.y == p.taps.y) tap.y = 0, ++tap.x; \
    }
#else
#define NEXT_TAP
#define TURN { \
        tap = unravel(turn, p.taps); \
        ivec3 of_all = p.tap_first + tap * p.tap_step; \
        turn_a = ((of_all.x * push.taps[1] + of_all.y) * push.taps[2] + of_all.z) * runs * DEPTH; \
        EACH_A(TURN_A) \
        EACH_LOAD(TURN_B) \
    }
#endif

// A place meets no cell for some taps, whose products are 0; but 0 times infinity is not. So where a sum of
// conv_input is not finite, a lane makes its sums again, of what is met alone.
#if defined(OP_conv_input) && FLOATING
#define RECHECKED 1
bool odd(vec4 v) {
    return any(equal(floatBitsToUint(v) & 0x7F800000u, uvec4(0x7F800000u)));
}
#define CHECK(i, e, j) again = again || odd(sum##i##e##j);

int a_at(int group, int row, int turn, Phase p, int runs) {
    ivec3 of_all = p.tap_first + unravel(turn, p.taps) * p.tap_step;
    int flat_tap = (of_all.x * push.taps[1] + of_all.y) * push.taps[2] + of_all.z;
    return push.a + group * push.a_group + flat_tap * runs * DEPTH * push.a_row + row;
}

TYPE strict_sum(Phase p, int group, int row, int column, int first, int last, int runs) {
    int size = product(p.places), outer = column / size;
    ivec3 place = p.start + p.place_cells * unravel(column - outer * size, p.places);
    TYPE sum = TYPE(0);
    for (int stage = first; stage < last; ++stage) {
        int turn = stage / runs, inner = (stage - turn * runs) * DEPTH;
        ivec3 cell = place + unravel(turn, p.taps) * p.tap_cells;
        if (!inside(cell)) continue;
        int at = a_at(group, row, turn, p, runs);
        int from = push.b + group * push.b_group + outer * push.b_outer + flat_cell(cell);
        for (int i = inner; i < min(inner + DEPTH, push.inners); ++i)
            sum += a[at + i * push.a_row] * b[from + i * push.b_inner];
    }
    return sum;
}

void make_again(Phase p, int base, int group, ivec2 mine, int first, int last, int runs) {
    for (int i = 0; i < 4 * QUADS_N; ++i)
        for (int j = 0; j < 4 * QUADS_M; ++j) {
            int row = mine.x + i / 4 * 16 + i % 4, column = mine.y + j / 4 * 32 + j % 4, at = spot(p, column);
            if (row < push.rows && at != NOWHERE)
                to[base + row * row_step() + at] = strict_sum(p, group, row, column, first, last, runs);
        }
}
#endif

void main() {
    int lane = int(gl_LocalInvocationID.x), warp = lane / 32;
    ivec2 mine = ivec2(warp / WARPS_M * 16 * QUADS_N, warp % WARPS_M * 32 * QUADS_M) + 4 * lane_of_32();
    int down = (push.rows + ROWS - 1) / ROWS, across = (width_of_all() + COLUMNS - 1) / COLUMNS;
    int tiles = down * across * phases() * push.groups * parts();
    for (int t = int(gl_WorkGroupID.x); t < tiles; t += int(gl_NumWorkGroups.x)) {
        ivec2 corner = ivec2(t % down * ROWS, t / down % across * COLUMNS);
        int outer = t / down / across, group = outer / phases() % push.groups;
        int part = outer / phases() / push.groups;
        Phase p = phase_of(outer % phases());
        int size = product(p.places);
        if (size == 0) continue;
#ifdef OP_conv_weight
        int turns = push.inners, length = product(p.taps);
#else
        int turns = product(p.taps), length = push.inners;
#endif
        int runs = (length + DEPTH - 1) / DEPTH;
        int each = (turns * runs - 1) / (parts() * TEAMS) + 1, first = (part * TEAMS + team()) * each;
        int last = min(turns * runs, first + each);
        int turn = first / runs, inner = (first - turn * runs) * DEPTH, turn_a = 0, stage = 0;
        ivec3 tap;
        EACH_RESULT(ZERO)
        EACH_A(FIRST_A)
        EACH_B(FIRST_B)
        EACH_LOAD(FIRST_COLUMN)
        barrier();  // nobody reads the tiles of the last round any more
        if (first < last) {
            TURN
            EACH_A(LOAD_A)
            EACH_LOAD(LOAD_B)
            EACH_A(STORE_A)
            EACH_B(STORE_B)
        }
        barrier();
        int end = TEAMS > 1 ? last - first - each : 0;  // all teams meet equally often
        for (int rest = last - first - 1; rest >= end; --rest) {
            if (rest > 0) {
                inner += DEPTH;
                if (inner >= length) {
                    inner = 0;
                    ++turn;
                    TURN
                } else {
                    NEXT_TAP
                    EACH_A(NEXT_A)
                    EACH_LOAD(NEXT_B)
                }
                EACH_A(LOAD_A)
                EACH_LOAD(LOAD_B)
            }
            ivec2 at = ((team() * 2 + stage) * ivec2(DEPTH * PITCH_A, DEPTH * PITCH_B) + mine) / 4;
            if (TEAMS == 1 || rest >= 0) {
                [[unroll]] for (int d = 0; d < DEPTH; ++d) {
                    TYPE4 left[QUADS_N], right[QUADS_M];
                    [[unroll]] for (int i = 0; i < QUADS_N; ++i) left[i] = tile_a[at.x + i * 4];
                    [[unroll]] for (int j = 0; j < QUADS_M; ++j) right[j] = tile_b[at.y + j * 8];
                    at += ivec2(PITCH_A, PITCH_B) / 4;
                    EACH_RESULT(MULTIPLY)
                }
            }
            stage = 1 - stage;
            if (rest > 0) {
                EACH_A(STORE_A)
                EACH_B(STORE_B)
            }
            barrier();
        }
        int base = push.to + part * push.pitch + group * push.rows * row_step();
        bool biased = push.bias >= 0 && part == 0;
        EACH_FOUR(SPOTS)
#if TEAMS > 1
        EACH_RESULT(LEAVE)
        barrier();
        for (int n = team(); n < 4 * QUADS_N; n += TEAMS) {
            int row = min(corner.x + mine.x + n / 4 * 16 + n % 4, push.rows - 1);
            TYPE4 more = TYPE4(biased ? bias[push.bias + (group * push.rows + row) * push.bias_step] : TYPE(0));
            write(base, corner.x + mine.x + n / 4 * 16 + n % 4, spots0, sum_of_teams(n, lane), more);
        }
#else
        EACH_RESULT(WRITE)
#endif
#if RECHECKED
        bool again = false;
        EACH_RESULT(CHECK)
        if (again) make_again(p, base, group, corner + mine, first, last, runs);
#endif
    }
}
