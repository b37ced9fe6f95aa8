// Products of tiles in shared memory, 64 rows by 64 columns, by 256 lanes of 4 × 4 results each.
//
//   TIMES(name, left, right)  a function that multiplies 64 rows of one side by 64 rows of the other
//   ADDING(load)              a function that adds the tile that was kept, transposed, times rows of a side
layout(local_size_x = 256) in;

const int SIDE = 64, ACROSS = SIDE / 4, DEPTH = 16, PITCH = SIDE / 4 + 1;  // fours of a row

// Sums have names, since a driver may keep arrays in memory instead of registers.
struct Tile { vec4 row0, row1, row2, row3; };
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3)
#define NOTHING Tile(vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0))


shared vec4 left_tile[DEPTH * PITCH];   // [depth][row]
shared vec4 right_tile[DEPTH * PITCH];  // [depth][column]
shared vec4 kept[SIDE * PITCH];         // [column][row]
shared vec4 meetings[ACROSS * ACROSS];

int lane() { return int(gl_LocalInvocationIndex); }

// The first column and the first row of this lane.
ivec2 mine() { return ivec2(lane() % ACROSS, lane() / ACROSS) * 4; }

// The i-th of this lane's queries, or the last there is.
ivec3 query_of(ivec3 at, int i) { return ivec3(at.xy, min(at.z + mine().y + i, push.queries - 1)); }

// How many keys the queries of a tile see.
int sees_most(ivec3 at) { return seen(ivec3(at.xy, min(at.z + SIDE, push.queries) - 1)); }

// Four numbers of each lane, one a row, to be looked at by the lane of a row.
void meet(vec4 x) {
    barrier();
    meetings[lane()] = x;
    barrier();
}
float met(int column) { return meetings[lane() / 4 * ACROSS + column][lane() % 4]; }

#define MULTIPLY(i) sum.row##i = fma(vec4(a[i]), b, sum.row##i);

// Rows behind the last of `rows` are zero.
#define TIMES(name, load_left, load_right) \
    Tile name(int left, int left_step, int left_rows, int right, int right_step, int right_rows, \
              int depth) { \
        Tile sum = NOTHING; \
        int row = lane() / 4, d = lane() % 4 * 4; \
        int from = left + row * left_step + d, other = right + row * right_step + d; \
        int left_depth = row < left_rows ? depth - d : 0, right_depth = row < right_rows ? depth - d : 0; \
        vec4 x = load_left(from, left_depth), y = load_right(other, right_depth); \
        for (int first = 0; first < depth; first += DEPTH) { \
            barrier(); \
            [[unroll]] for (int j = 0; j < 4; ++j) { \
                left_tile[(d + j) * PITCH + row / 4][row % 4] = x[j]; \
                right_tile[(d + j) * PITCH + row / 4][row % 4] = y[j]; \
            } \
            barrier(); \
            int next = first + DEPTH; /* what comes next is loaded while this is multiplied */ \
            if (next < depth) { \
                x = load_left(from + next, left_depth - next); \
                y = load_right(other + next, right_depth - next); \
            } \
            [[unroll]] for (int j = 0; j < DEPTH; ++j) { \
                vec4 a = left_tile[j * PITCH + lane() / ACROSS]; \
                vec4 b = right_tile[j * PITCH + lane() % ACROSS]; \
                EACH_ROW(MULTIPLY) \
            } \
        } \
        return sum; \
    }

void keep(Tile s) {
    barrier();  // the last one was read
    [[unroll]] for (int j = 0; j < 4; ++j)
        kept[(mine().x + j) * PITCH + lane() / ACROSS] = vec4(s.row0[j], s.row1[j], s.row2[j], s.row3[j]);
}

#define ADDING(load) \
    void add_##load(inout Tile sum, int from, int step, int rows, int column, int depth) { \
        int row = lane() / ACROSS, e = column * SIDE + mine().x; \
        vec4 x = load(from + row * step + e, row < rows ? depth - e : 0); \
        for (int first = 0; first < min(SIDE, rows); first += DEPTH) { \
            barrier(); \
            right_tile[row * PITCH + lane() % ACROSS] = x; \
            barrier(); \
            int next = first + DEPTH + row; \
            if (next < min(SIDE, rows)) x = load(from + next * step + e, depth - e); \
            else x = vec4(0.0); \
            [[unroll]] for (int j = 0; j < DEPTH; ++j) { \
                vec4 a = kept[(first + j) * PITCH + lane() / ACROSS]; \
                vec4 b = right_tile[j * PITCH + lane() % ACROSS]; \
                EACH_ROW(MULTIPLY) \
            } \
        } \
    }

void write_row(vec4 sum, int base, int row, int rows, int column, int width) {
    [[unroll]] for (int j = 0; j < 4; ++j) {
        int e = column * SIDE + mine().x + j;
        if (row < rows && e < width) to[base + row * width + e] = sum[j];
    }
}

void write(Tile sum, int base, int rows, int column, int width) {
#define WRITE_ROW(i) write_row(sum.row##i, base, mine().y + i, rows, column, width);
    EACH_ROW(WRITE_ROW)
}

#define NO_SUM(c) Tile sum##c = NOTHING;

#if COLUMNS == 1
#define EACH_COLUMN(DO) DO(0)
#elif COLUMNS == 2
#define EACH_COLUMN(DO) DO(0) DO(1)
#else
#define EACH_COLUMN(DO) DO(0) DO(1) DO(2) DO(3)
#endif
