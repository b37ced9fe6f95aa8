#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// c = a @ b for batches of matrices: c (batch, n, m), a (batch, n, k), b (batch, k, m), c dense, the others
// strided. A linear layer adds a bias to each column, and a residual, and may apply an activation.
//
//   -DTYPE=float -DTYPE4=vec4, or int and ivec4; -DMASK=255 for bytes, else 0
//   -DACTIVATED=1       where an activation is applied, else 0
//   -DTILED=1           body for GPUs: tiles in shared memory, the next ones loaded early
//     -DQUADS_N -DQUADS_M  a lane has 4 · QUADS_N rows and 4 · QUADS_M columns of results,
//     -DWARPS_N -DWARPS_M  32 lanes have four times as many rows and eight times as many columns, and so many
//                          such groups make a tile
//     -DA_MODE -DB_MODE how a side is loaded, four cells at a time; its edge is n or m, its depth k
//   -DTILED=0           body for CPUs: no shared memory, -DROWS=16 rows of four vec4 a lane; b dense along m,
//                       and read in fours (-DB_MODE=ALONG) or one by one
#define DEEP 0      // neighbours along the depth, on 16 bytes
#define ALONG 1     // neighbours along the edge, likewise
#define ONE_BY_ONE 2  // along the depth, with any strides

layout(push_constant) uniform Push {
    int n, k, m;
    int a_offset, a_row, a_col;  // words; a_col is the stride of k
    int b_offset, b_row, b_col;  // b_row is the stride of k
    int c_offset;
    int batches;
    int splits, pitch;           // k is cut into so many parts, whose results lie so many words apart
    int shape[3];                // of the batch
    int a_batch[3];
    int b_batch[3];
    int bias, bias_step;         // bias -1: none
    int residual, residual_row, residual_col;  // likewise
} push;

#define ACTIVATION_ID 1
#include "activation.glsl"

layout(binding = 0) buffer C { TYPE c[]; };
layout(binding = 1) readonly buffer A { TYPE a[]; };
layout(binding = 2) readonly buffer B { TYPE b[]; };
layout(binding = 3) readonly buffer Bias { TYPE bias[]; };
layout(binding = 4) readonly buffer Residual { TYPE residual[]; };
layout(binding = 0) writeonly buffer C4 { TYPE4 c4[]; };
layout(binding = 1) readonly buffer A4 { TYPE4 a4[]; };
layout(binding = 2) readonly buffer B4 { TYPE4 b4[]; };

#if MASK
#define DONE(v) ((v) & MASK)
#else
#define DONE(v) (v)
#endif

// A product and a sum that the driver is not free to keep apart: fused they are one instruction.
vec4 mad(float x, vec4 y, vec4 z) { return fma(vec4(x), y, z); }
ivec4 mad(int x, ivec4 y, ivec4 z) { return x * y + z; }

// What is added to a column of a part.
TYPE more(int split, int column) {
    if (push.bias < 0 || split > 0) return TYPE(0);
    return bias[push.bias + min(column, push.m - 1) * push.bias_step];
}

// What is added to a result of a part.
TYPE other(int split, int row, int column) {
    if (push.residual < 0 || split > 0) return TYPE(0);
    return residual[push.residual + row * push.residual_row + min(column, push.m - 1) * push.residual_col];
}

ivec2 batch_offsets(int batch) {
    int first = batch / (push.shape[1] * push.shape[2]);
    int rest = batch - first * push.shape[1] * push.shape[2];
    ivec3 at = ivec3(first, rest / push.shape[2], rest % push.shape[2]);
    return ivec2(at.x * push.a_batch[0] + at.y * push.a_batch[1] + at.z * push.a_batch[2],
                 at.x * push.b_batch[0] + at.y * push.b_batch[1] + at.z * push.b_batch[2]);
}

#if TILED

const int ROWS = 16 * QUADS_N * WARPS_N, COLUMNS = 32 * QUADS_M * WARPS_M, DEPTH = 8;  // of a tile
const int LANES = 32 * WARPS_N * WARPS_M;
const int PITCH_A = ROWS + 4, PITCH_B = COLUMNS + 4;  // so that 32 lanes that store across meet 32 banks

layout(local_size_x = 32 * WARPS_N * WARPS_M) in;
shared TYPE4 tile_a[2 * DEPTH * PITCH_A / 4];  // [stage][depth][row]
shared TYPE4 tile_b[2 * DEPTH * PITCH_B / 4];  // [stage][depth][column]

// Where the four cells of a load lie in a tile: how far along its edge, and how deep.
ivec2 place(int load, int edge, int mode) {
    int x = int(gl_LocalInvocationIndex) + load * LANES;
    return mode == ALONG ? ivec2(x % (edge / 4) * 4, x / (edge / 4)) : ivec2(x / 2, x % 2 * 4);
}

TYPE4 load_a(int at) {
#if A_MODE == ONE_BY_ONE
    return TYPE4(a[at], a[at + push.a_col], a[at + 2 * push.a_col], a[at + 3 * push.a_col]);
#else
    return a4[at >> 2];
#endif
}

TYPE4 load_b(int at) {
#if B_MODE == ONE_BY_ONE
    return TYPE4(b[at], b[at + push.b_row], b[at + 2 * push.b_row], b[at + 3 * push.b_row]);
#else
    return b4[at >> 2];
#endif
}

// The same where the inner axis ends after so many cells; zeros lie behind.
TYPE4 load_last_a(int at, int left) {
    TYPE4 v = TYPE4(0);
#if A_MODE == ALONG
    if (left > 0) v = a4[at >> 2];
#else
    [[unroll]] for (int j = 0; j < 4; ++j)
        if (j < left) v[j] = a[at + j * push.a_col];
#endif
    return v;
}

TYPE4 load_last_b(int at, int left) {
    TYPE4 v = TYPE4(0);
#if B_MODE == ALONG
    if (left > 0) v = b4[at >> 2];
#else
    [[unroll]] for (int j = 0; j < 4; ++j)
        if (j < left) v[j] = b[at + j * push.b_row];
#endif
    return v;
}

void store_a(int stage, ivec2 at, TYPE4 v) {
    int cell = (stage * DEPTH + at.y) * PITCH_A + at.x;
#if A_MODE == ALONG
    tile_a[cell >> 2] = v;
#else
    [[unroll]] for (int j = 0; j < 4; ++j) tile_a[(cell >> 2) + j * (PITCH_A / 4)][cell & 3] = v[j];
#endif
}

void store_b(int stage, ivec2 at, TYPE4 v) {
    int cell = (stage * DEPTH + at.y) * PITCH_B + at.x;
#if B_MODE == ALONG
    tile_b[cell >> 2] = v;
#else
    [[unroll]] for (int j = 0; j < 4; ++j) tile_b[(cell >> 2) + j * (PITCH_B / 4)][cell & 3] = v[j];
#endif
}

void write(int base, int split, ivec2 at, TYPE4 v) {
    if (at.x >= push.n) return;
    [[unroll]] for (int j = 0; j < 4; ++j) v[j] += other(split, at.x, at.y + j);
    int cell = base + at.x * push.m + at.y;
    v = activated(DONE(v));
    if (at.y + 3 < push.m && (cell & 3) == 0) c4[cell >> 2] = v;
    else
        [[unroll]] for (int j = 0; j < 4; ++j)
            if (at.y + j < push.m) c[cell + j] = v[j];
}

// Rows and columns of neighbouring lanes alternate, so that 16 lanes read 64 bytes of either tile.
ivec2 lane_of_32() {
    int x = int(gl_LocalInvocationIndex);
    return ivec2((x >> 1 & 1) | (x >> 2 & 2), (x & 1) | (x >> 1 & 2) | (x >> 2 & 4));
}

// What a lane loads and sums has names, since a driver may keep arrays in memory instead of registers. Loads:
#if QUADS_N == WARPS_M
#define EACH_A(DO) DO(0)
#else
#define EACH_A(DO) DO(0) DO(1)
#endif
#define EACH_B(DO) DO(0) DO(1)
// and results: the e-th row of the i-th four, the j-th four of columns.
#if QUADS_M == 1
#define EACH_COLUMN(DO, i, e) DO(i, e, 0)
#define EACH_FOUR(DO) DO(0)
#else
#define EACH_COLUMN(DO, i, e) DO(i, e, 0) DO(i, e, 1)
#define EACH_FOUR(DO) DO(0) DO(1)
#endif
#define EACH_ROW(DO, i) \
    EACH_COLUMN(DO, i, 0) EACH_COLUMN(DO, i, 1) EACH_COLUMN(DO, i, 2) EACH_COLUMN(DO, i, 3)
#if QUADS_N == 2
#define EACH_RESULT(DO) EACH_ROW(DO, 0) EACH_ROW(DO, 1)
#else
#define EACH_RESULT(DO) EACH_ROW(DO, 0) EACH_ROW(DO, 1) EACH_ROW(DO, 2) EACH_ROW(DO, 3)
#endif

// Behind the edges some cells are read once more; what becomes of them is not written. The last tile, which
// may lack some of its depth, comes first, so that those loaded while others are multiplied are whole.
#define FIRST_A(i) \
    ivec2 place_a##i = place(i, ROWS, A_MODE); \
    int row##i = min(corner.x + place_a##i.x, push.n - (A_MODE == ALONG ? 4 : 1)); \
    int at_a##i = origin.x + row##i * push.a_row + (first + place_a##i.y) * push.a_col; \
    TYPE4 next_a##i = load_last_a(at_a##i + to_last * push.a_col, last - first - to_last - place_a##i.y);
#define FIRST_B(i) \
    ivec2 place_b##i = place(i, COLUMNS, B_MODE); \
    int col##i = min(corner.y + place_b##i.x, push.m - (B_MODE == ALONG ? 4 : 1)); \
    int at_b##i = origin.y + col##i * push.b_col + (first + place_b##i.y) * push.b_row; \
    TYPE4 next_b##i = load_last_b(at_b##i + to_last * push.b_row, last - first - to_last - place_b##i.y);
#define LOAD_A(i) next_a##i = load_a(at_a##i); at_a##i += DEPTH * push.a_col;
#define LOAD_B(i) next_b##i = load_b(at_b##i); at_b##i += DEPTH * push.b_row;
#define STORE_A(i) store_a(stage, place_a##i, next_a##i);
#define STORE_B(i) store_b(stage, place_b##i, next_b##i);
#define ZERO(i, e, j) TYPE4 sum##i##e##j = TYPE4(0);
#define MULTIPLY(i, e, j) sum##i##e##j = mad(left[i][e], right[j], sum##i##e##j);
#define MORE(j) TYPE4 more##j = TYPE4(more(split, column + j * 32), more(split, column + j * 32 + 1), \
    more(split, column + j * 32 + 2), more(split, column + j * 32 + 3));
#define WRITE(i, e, j) write(base, split, corner + mine + ivec2(i * 16 + e, j * 32), sum##i##e##j + more##j);

void main() {
    int warp = int(gl_LocalInvocationIndex) / 32;
    ivec2 mine = ivec2(warp / WARPS_M * 16 * QUADS_N, warp % WARPS_M * 32 * QUADS_M) + 4 * lane_of_32();
    int rows = (push.n + ROWS - 1) / ROWS, columns = (push.m + COLUMNS - 1) / COLUMNS;
    int part = ((push.k + push.splits - 1) / push.splits + DEPTH - 1) / DEPTH * DEPTH;
    int tiles = rows * columns * push.batches * push.splits;
    for (int t = int(gl_WorkGroupID.x); t < tiles; t += int(gl_NumWorkGroups.x)) {
        int inside = t % (rows * columns), outer = t / (rows * columns);
        int batch = outer % push.batches, split = outer / push.batches;
        ivec2 corner = ivec2(inside % rows * ROWS, inside / rows * COLUMNS);
        ivec2 origin = ivec2(push.a_offset, push.b_offset) + batch_offsets(batch);
        int first = split * part, last = min(push.k, first + part), deep = (last - first + DEPTH - 1) / DEPTH;
        int to_last = (deep - 1) * DEPTH, stage = 0;
        EACH_RESULT(ZERO)
        EACH_A(FIRST_A)
        EACH_B(FIRST_B)
        barrier();  // nobody reads the tiles of the last round any more
        EACH_A(STORE_A)
        EACH_B(STORE_B)
        barrier();
        for (int rest = deep - 1; rest >= 0; --rest) {
            if (rest > 0) {
                EACH_A(LOAD_A)
                EACH_B(LOAD_B)
            }
            ivec2 at = (stage * ivec2(DEPTH * PITCH_A, DEPTH * PITCH_B) + mine) / 4;
            [[unroll]] for (int d = 0; d < DEPTH; ++d) {
                TYPE4 left[QUADS_N], right[QUADS_M];
                [[unroll]] for (int i = 0; i < QUADS_N; ++i) left[i] = tile_a[at.x + i * 4];
                [[unroll]] for (int j = 0; j < QUADS_M; ++j) right[j] = tile_b[at.y + j * 8];
                at += ivec2(PITCH_A, PITCH_B) / 4;
                EACH_RESULT(MULTIPLY)
            }
            stage = 1 - stage;
            if (rest > 0) {
                EACH_A(STORE_A)
                EACH_B(STORE_B)
            }
            barrier();
        }
        int base = push.c_offset + split * push.pitch + batch * push.n * push.m, column = corner.y + mine.y;
        EACH_FOUR(MORE)
        EACH_RESULT(WRITE)
    }
}

#else

layout(local_size_x_id = 0) in;
const int COLUMNS = 16;

void main() {
    int down = (push.n + ROWS - 1) / ROWS, across = (push.m + COLUMNS - 1) / COLUMNS;
    int part = (push.k + push.splits - 1) / push.splits;
    int lanes = int(gl_NumWorkGroups.x * gl_WorkGroupSize.x);
    int blocks = down * across * push.batches * push.splits;
    for (int t = int(gl_GlobalInvocationID.x); t < blocks; t += lanes) {
        int inside = t % (down * across), outer = t / (down * across);
        int batch = outer % push.batches, split = outer / push.batches;
        ivec2 base = ivec2(push.a_offset, push.b_offset) + batch_offsets(batch);
        int row = inside / across * ROWS, col = inside % across * COLUMNS;
        TYPE4 sums[ROWS][4];
        [[unroll]] for (int i = 0; i < ROWS; ++i)
            [[unroll]] for (int j = 0; j < 4; ++j) sums[i][j] = TYPE4(0);
        int at[ROWS];
        [[unroll]] for (int i = 0; i < ROWS; ++i) at[i] = base.x + min(row + i, push.n - 1) * push.a_row;
        for (int d = split * part, last = min(push.k, d + part); d < last; ++d) {
            TYPE4 right[4];
            int from = base.y + d * push.b_row;
#if B_MODE == ALONG
            [[unroll]] for (int j = 0; j < 4; ++j) right[j] = b4[(from + min(col + 4 * j, push.m - 4)) >> 2];
#else
            [[unroll]] for (int j = 0; j < COLUMNS; ++j)
                right[j / 4][j % 4] = b[from + min(col + j, push.m - 1)];
#endif
            [[unroll]] for (int i = 0; i < ROWS; ++i) {
                TYPE left = a[at[i] + d * push.a_col];
                [[unroll]] for (int j = 0; j < 4; ++j) sums[i][j] = mad(left, right[j], sums[i][j]);
            }
        }
        int to = push.c_offset + split * push.pitch + batch * push.n * push.m + row * push.m + col;
        TYPE added[COLUMNS];
        [[unroll]] for (int j = 0; j < COLUMNS; ++j) added[j] = more(split, col + j);
        [[unroll]] for (int i = 0; i < ROWS; ++i)
            if (row + i < push.n)
                [[unroll]] for (int j = 0; j < COLUMNS; ++j)
                    if (col + j < push.m)
                        c[to + i * push.m + j] = DONE(sums[i][j / 4][j % 4] + added[j]
                                                      + other(split, row + i, col + j));
#if ACTIVATED  // in a loop of its own: CPU drivers would take seconds to compile one function so many times
        for (int i = 0; i < ROWS * COLUMNS; ++i) {
            int at = to + i / COLUMNS * push.m + i % COLUMNS;
            if (row + i / COLUMNS < push.n && col + i % COLUMNS < push.m) c[at] = activated(c[at]);
        }
#endif
    }
}
#endif
