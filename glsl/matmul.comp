#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// c = a @ b for batches of matrices: c (batch, n, m), a (batch, n, k), b (batch, k, m), c dense, a and b strided.
//
//   -DTYPE=float -DTYPE4=vec4, or int and ivec4; -DMASK=255 for bytes, else 0
//   -DTILED=1           body for GPUs: tiles in shared memory, 8x8 results a lane, the next tile loaded early
//     -DWARPS_N -DWARPS_M  tiles of 64 · WARPS_N rows and 32 · WARPS_M columns, a lane group of 32 each 64x32
//     -DPAD             words between rows of shared memory, against bank conflicts
//     -DA_MODE -DB_MODE 0: four neighbours along the inner axis k of a, or along m of b, are loaded at once;
//                       1: along n of a, or along k of b; 2: any strides
//   -DTILED=0           body for CPUs: no shared memory, 8 rows of four vec4 a lane; b dense along m

layout(push_constant) uniform Push {
    int n, k, m;
    int a_offset, a_row, a_col;  // words; a_col is the stride of k
    int b_offset, b_row, b_col;  // b_row is the stride of k
    int c_offset;
    int batches;
    int splits, pitch;           // k is cut into so many parts, each with results of its own, so many words apart
    int shape[3];                // of the batch
    int a_batch[3];
    int b_batch[3];
} push;

layout(binding = 0) writeonly buffer C { TYPE c[]; };
layout(binding = 1) readonly buffer A { TYPE a[]; };
layout(binding = 2) readonly buffer B { TYPE b[]; };
layout(binding = 0) writeonly buffer C4 { TYPE4 c4[]; };
layout(binding = 1) readonly buffer A4 { TYPE4 a4[]; };
layout(binding = 2) readonly buffer B4 { TYPE4 b4[]; };

#if MASK
#define DONE(v) ((v) & MASK)
#else
#define DONE(v) (v)
#endif

// A product and a sum that the driver is not free to keep apart: fused they are one instruction, and rounded once.
vec4 mad(float x, vec4 y, vec4 z) { return fma(vec4(x), y, z); }
ivec4 mad(int x, ivec4 y, ivec4 z) { return x * y + z; }

ivec2 batch_offsets(int batch) {
    int first = batch / (push.shape[1] * push.shape[2]);
    int rest = batch - first * push.shape[1] * push.shape[2];
    ivec3 at = ivec3(first, rest / push.shape[2], rest % push.shape[2]);
    return ivec2(at.x * push.a_batch[0] + at.y * push.a_batch[1] + at.z * push.a_batch[2],
                 at.x * push.b_batch[0] + at.y * push.b_batch[1] + at.z * push.b_batch[2]);
}

#if TILED

const int BN = 64 * WARPS_N, BM = 32 * WARPS_M, BK = 16;  // rows, columns, depth of a tile
const int LANES = 32 * WARPS_N * WARPS_M;
const int LOADS_A = BN * BK / 4 / LANES, LOADS_B = BM * BK / 4 / LANES;
const int PITCH_A = BN + PAD, PITCH_B = BM + PAD;

layout(local_size_x = 32 * WARPS_N * WARPS_M) in;
shared TYPE4 tile_a[2 * BK * PITCH_A / 4];  // [stage][depth][row]
shared TYPE4 tile_b[2 * BK * PITCH_B / 4];  // [stage][depth][column]

// Where the x-th group of four cells of a tile lies. Stored as it was loaded: (depth, cell), along rows of the tile.
ivec2 cell_along(int x, int length) { return ivec2(x / (length / 4), x % (length / 4) * 4); }

// Stored across: (cell, depth). Four lanes load 64 neighbouring bytes; so that 32 lanes store to 32 banks (if PAD is
// 4), rows of the deeper half change places by eights.
ivec2 cell_across(int x) { return ivec2(x / (BK / 4), x % (BK / 4) * 4); }
const int SWAP = 8;

TYPE4 load_a(int base, int row, int col, int last) {  // four cells along k
    TYPE4 v = TYPE4(0);
    if (row >= push.n) return v;
#if A_MODE == 0
    if (col + 3 < last) return a4[(base + row * push.a_row + col) >> 2];
#endif
    [[unroll]] for (int j = 0; j < 4; ++j)
        if (col + j < last) v[j] = a[base + row * push.a_row + (col + j) * push.a_col];
    return v;
}

TYPE4 load_a_down(int base, int row, int col, int last) {  // four cells along n
    TYPE4 v = TYPE4(0);
    if (col >= last) return v;
    if (row + 3 < push.n) return a4[(base + row + col * push.a_col) >> 2];
    [[unroll]] for (int j = 0; j < 4; ++j)
        if (row + j < push.n) v[j] = a[base + row + j + col * push.a_col];
    return v;
}

TYPE4 load_b(int base, int row, int col, int last) {  // four cells along m
    TYPE4 v = TYPE4(0);
    if (row >= last) return v;
#if B_MODE == 0
    if (col + 3 < push.m) return b4[(base + row * push.b_row + col) >> 2];
#endif
    [[unroll]] for (int j = 0; j < 4; ++j)
        if (col + j < push.m) v[j] = b[base + row * push.b_row + (col + j) * push.b_col];
    return v;
}

TYPE4 load_b_down(int base, int row, int col, int last) {  // four cells along k
    TYPE4 v = TYPE4(0);
    if (col >= push.m) return v;
    if (row + 3 < last) return b4[(base + row + col * push.b_col) >> 2];
    [[unroll]] for (int j = 0; j < 4; ++j)
        if (row + j < last) v[j] = b[base + row + j + col * push.b_col];
    return v;
}

// A tile that lies inside needs no comparisons.
void fetch_inside(out TYPE4 fetched_a[LOADS_A], out TYPE4 fetched_b[LOADS_B], ivec2 base, ivec2 corner, int depth) {
    int lane = int(gl_LocalInvocationIndex);
    [[unroll]] for (int i = 0; i < LOADS_A; ++i) {
#if A_MODE == 1
        ivec2 at = ivec2(depth, corner.x) + cell_along(lane + i * LANES, BN);
        fetched_a[i] = a4[(base.x + at.y + at.x * push.a_col) >> 2];
#elif A_MODE == 0
        ivec2 at = ivec2(corner.x, depth) + cell_across(lane + i * LANES);
        fetched_a[i] = a4[(base.x + at.x * push.a_row + at.y) >> 2];
#else
        ivec2 at = ivec2(corner.x, depth) + cell_across(lane + i * LANES);
        int cell = base.x + at.x * push.a_row + at.y * push.a_col;
        [[unroll]] for (int j = 0; j < 4; ++j) fetched_a[i][j] = a[cell + j * push.a_col];
#endif
    }
    [[unroll]] for (int i = 0; i < LOADS_B; ++i) {
#if B_MODE == 1
        ivec2 at = ivec2(corner.y, depth) + cell_across(lane + i * LANES);
        fetched_b[i] = b4[(base.y + at.y + at.x * push.b_col) >> 2];
#elif B_MODE == 0
        ivec2 at = ivec2(depth, corner.y) + cell_along(lane + i * LANES, BM);
        fetched_b[i] = b4[(base.y + at.x * push.b_row + at.y) >> 2];
#else
        ivec2 at = ivec2(depth, corner.y) + cell_along(lane + i * LANES, BM);
        int cell = base.y + at.x * push.b_row + at.y * push.b_col;
        [[unroll]] for (int j = 0; j < 4; ++j) fetched_b[i][j] = b[cell + j * push.b_col];
#endif
    }
}

void fetch(
    out TYPE4 fetched_a[LOADS_A], out TYPE4 fetched_b[LOADS_B], ivec2 base, ivec2 corner, int depth, int last) {
    if (corner.x + BN <= push.n && corner.y + BM <= push.m && depth + BK <= last) {
        fetch_inside(fetched_a, fetched_b, base, corner, depth);
        return;
    }
    int lane = int(gl_LocalInvocationIndex);
    [[unroll]] for (int i = 0; i < LOADS_A; ++i) {
#if A_MODE == 1
        ivec2 at = cell_along(lane + i * LANES, BN);  // (depth, row)
        fetched_a[i] = load_a_down(base.x, corner.x + at.y, depth + at.x, last);
#else
        ivec2 at = cell_across(lane + i * LANES);  // (row, depth)
        fetched_a[i] = load_a(base.x, corner.x + at.x, depth + at.y, last);
#endif
    }
    [[unroll]] for (int i = 0; i < LOADS_B; ++i) {
#if B_MODE == 1
        ivec2 at = cell_across(lane + i * LANES);  // (column, depth)
        fetched_b[i] = load_b_down(base.y, depth + at.y, corner.y + at.x, last);
#else
        ivec2 at = cell_along(lane + i * LANES, BM);  // (depth, column)
        fetched_b[i] = load_b(base.y, depth + at.x, corner.y + at.y, last);
#endif
    }
}

// Four cells that lie in one row of shared memory, or one below the other.
#define STORE_ALONG(tile, at, v) tile[(at) >> 2] = v
#define STORE_DOWN(tile, at, pitch, v) \
    [[unroll]] for (int j = 0; j < 4; ++j) tile[((at) + j * (pitch)) >> 2][(at) % 4] = v[j]

void store(TYPE4 fetched_a[LOADS_A], TYPE4 fetched_b[LOADS_B], int stage) {
    int lane = int(gl_LocalInvocationIndex);
    [[unroll]] for (int i = 0; i < LOADS_A; ++i) {
#if A_MODE == 1
        ivec2 at = cell_along(lane + i * LANES, BN);
        STORE_ALONG(tile_a, (stage * BK + at.x) * PITCH_A + at.y, fetched_a[i]);
#else
        ivec2 at = cell_across(lane + i * LANES);
        STORE_DOWN(tile_a, (stage * BK + at.y) * PITCH_A + (at.x ^ (at.y & SWAP)), PITCH_A, fetched_a[i]);
#endif
    }
    [[unroll]] for (int i = 0; i < LOADS_B; ++i) {
#if B_MODE == 1
        ivec2 at = cell_across(lane + i * LANES);
        STORE_DOWN(tile_b, (stage * BK + at.y) * PITCH_B + (at.x ^ (at.y & SWAP)), PITCH_B, fetched_b[i]);
#else
        ivec2 at = cell_along(lane + i * LANES, BM);
        STORE_ALONG(tile_b, (stage * BK + at.x) * PITCH_B + at.y, fetched_b[i]);
#endif
    }
}

// The results of a lane: rows 0-3 and 32-35 below its first, columns 0-3 and 16-19 beside it. Each has a name of its
// own, because a driver may keep an array in memory instead of registers.
#define FOR_EACH_ROW(DO) DO(0, 0, upper.x) DO(1, 1, upper.y) DO(2, 2, upper.z) DO(3, 3, upper.w) \
    DO(4, 32, lower.x) DO(5, 33, lower.y) DO(6, 34, lower.z) DO(7, 35, lower.w)
#define DECLARE(i, row, left) TYPE4 sum##i##0 = TYPE4(0), sum##i##1 = TYPE4(0);
#define MULTIPLY(i, row, left) \
    sum##i##0 = mad(left, right0, sum##i##0); \
    sum##i##1 = mad(left, right1, sum##i##1);
#define WRITE(i, row, left) write_row(base, at.x + row, at.y, sum##i##0, sum##i##1);

void write_four(int cell, int col, TYPE4 v) {
    if (col + 3 < push.m && (cell & 3) == 0) c4[cell >> 2] = DONE(v);
    else
        [[unroll]] for (int j = 0; j < 4; ++j)
            if (col + j < push.m) c[cell + j] = DONE(v[j]);
}

void write_row(int base, int row, int col, TYPE4 left, TYPE4 right) {
    if (row >= push.n) return;
    write_four(base + row * push.m + col, col, left);
    write_four(base + row * push.m + col + 16, col + 16, right);
}

void main() {
    int lane = int(gl_LocalInvocationIndex), warp = lane / 32, in_warp = lane % 32;
    ivec2 mine = ivec2(warp / WARPS_M * 64 + in_warp / 4 * 4, warp % WARPS_M * 32 + in_warp % 4 * 4);
    int rows = (push.n + BN - 1) / BN, columns = (push.m + BM - 1) / BM;
    int part = ((push.k + push.splits - 1) / push.splits + BK - 1) / BK * BK;
    int tiles = rows * columns * push.batches * push.splits;
    for (int t = int(gl_WorkGroupID.x); t < tiles; t += int(gl_NumWorkGroups.x)) {
        int inside = t % (rows * columns), outer = t / (rows * columns);
        int batch = outer % push.batches, split = outer / push.batches;
        ivec2 corner = ivec2(inside % rows * BN, inside / rows * BM);
        ivec2 corner_base = ivec2(push.a_offset, push.b_offset) + batch_offsets(batch);
        int depth = split * part, last = min(push.k, depth + part), stage = 0;
        TYPE4 fetched_a[LOADS_A], fetched_b[LOADS_B];
        FOR_EACH_ROW(DECLARE)
        fetch(fetched_a, fetched_b, corner_base, corner, depth, last);
        barrier();  // nobody reads the last tile's stage any more
        store(fetched_a, fetched_b, 0);
        barrier();
        for (; depth < last; depth += BK) {
            bool more = depth + BK < last;
            if (more) fetch(fetched_a, fetched_b, corner_base, corner, depth + BK, last);
            int from_a = stage * BK * PITCH_A, from_b = stage * BK * PITCH_B;
            ivec2 at_a = (from_a + ivec2(mine.x, mine.x ^ (A_MODE == 1 ? 0 : SWAP))) >> 2;  // upper and deeper half
            ivec2 at_b = (from_b + ivec2(mine.y, mine.y ^ (B_MODE == 1 ? SWAP : 0))) >> 2;
            [[unroll]] for (int d = 0; d < BK; ++d) {
                int a_at = at_a[d / SWAP] + d * (PITCH_A / 4), b_at = at_b[d / SWAP] + d * (PITCH_B / 4);
                TYPE4 upper = tile_a[a_at], lower = tile_a[a_at + 8];
                TYPE4 right0 = tile_b[b_at], right1 = tile_b[b_at + 4];
                FOR_EACH_ROW(MULTIPLY)
            }
            if (more) store(fetched_a, fetched_b, 1 - stage);
            barrier();
            stage = 1 - stage;
        }
        int base = push.c_offset + split * push.pitch + batch * push.n * push.m;
        ivec2 at = corner + mine;
        FOR_EACH_ROW(WRITE)
    }
}

#else

layout(local_size_x_id = 0) in;
const int ROWS = 8, COLUMNS = 16;

void main() {
    int down = (push.n + ROWS - 1) / ROWS, across = (push.m + COLUMNS - 1) / COLUMNS;
    int part = (push.k + push.splits - 1) / push.splits;
    int blocks = down * across * push.batches * push.splits, lanes = int(gl_NumWorkGroups.x * gl_WorkGroupSize.x);
    for (int t = int(gl_GlobalInvocationID.x); t < blocks; t += lanes) {
        int inside = t % (down * across), outer = t / (down * across);
        int batch = outer % push.batches, split = outer / push.batches;
        ivec2 base = ivec2(push.a_offset, push.b_offset) + batch_offsets(batch);
        int row = inside % down * ROWS, col = inside / down * COLUMNS;
        TYPE4 sums[ROWS][4];
        [[unroll]] for (int i = 0; i < ROWS; ++i) [[unroll]] for (int j = 0; j < 4; ++j) sums[i][j] = TYPE4(0);
        bool whole = col + COLUMNS <= push.m && (base.y + col) % 4 == 0 && push.b_row % 4 == 0;
        int at[ROWS];
        [[unroll]] for (int i = 0; i < ROWS; ++i) at[i] = base.x + min(row + i, push.n - 1) * push.a_row;
        for (int d = split * part, last = min(push.k, d + part); d < last; ++d) {
            TYPE4 right[4];
            int from = base.y + d * push.b_row + col;
            if (whole)
                [[unroll]] for (int j = 0; j < 4; ++j) right[j] = b4[(from >> 2) + j];
            else
                [[unroll]] for (int j = 0; j < COLUMNS; ++j)
                    right[j / 4][j % 4] = col + j < push.m ? b[from + j] : TYPE(0);
            [[unroll]] for (int i = 0; i < ROWS; ++i) {
                TYPE left = a[at[i] + d * push.a_col];
                [[unroll]] for (int j = 0; j < 4; ++j) sums[i][j] = mad(left, right[j], sums[i][j]);
            }
        }
        int out_at = push.c_offset + split * push.pitch + batch * push.n * push.m;
        [[unroll]] for (int i = 0; i < ROWS; ++i)
            if (row + i < push.n)
                [[unroll]] for (int j = 0; j < COLUMNS; ++j)
                    if (col + j < push.m) c[out_at + (row + i) * push.m + col + j] = DONE(sums[i][j / 4][j % 4]);
    }
}
#endif
