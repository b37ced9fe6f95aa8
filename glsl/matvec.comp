#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// c = a @ b, plus a bias and a residual, and an activation, where a has few rows: what takes time is reading b. For GPUs.
//
//   -DROWS=1 or 4       of a, at most
//   -DDEEP=1            b dense along its depth, read four cells of four columns at a time, and a as well
//   -DDEEP=0            b dense along its columns, read four columns at a time
//   -DACTIVATED=1       where an activation is applied, else 0
// A workgroup has FOURS times four columns; lanes that share four of them cut the depth among themselves.
layout(push_constant) uniform Push {
    int n, k, m;
    int a_offset, a_row, a_col;  // words; a_col is the stride of the depth
    int b_offset, b_step;        // of the axis along which b is not dense
    int c_offset;
    int bias, bias_step;         // bias -1: none
    int residual, residual_row, residual_col;  // likewise
} push;

#define ACTIVATION_ID 1
#include "activation.glsl"
layout(constant_id = 2) const int FOURS = 8;

const int LANES = 256, TEAM = LANES / FOURS, AHEAD = 4;

layout(local_size_x = 256) in;
layout(binding = 0) writeonly buffer C { float c[]; };
layout(binding = 1) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer A4 { vec4 a4[]; };
layout(binding = 2) readonly buffer B4 { vec4 b4[]; };
layout(binding = 3) readonly buffer Bias { float bias[]; };
layout(binding = 4) readonly buffer Residual { float residual[]; };

shared vec4 meeting[LANES * ROWS];
vec4 sums[ROWS];

int row_start(int r) { return push.a_offset + min(r, push.n - 1) * push.a_row; }

#if DEEP
void add(int column, int part) {
    for (int d = 4 * part; d < push.k; d += 4 * TEAM) {
        vec4 some[4];
        [[unroll]] for (int j = 0; j < 4; ++j)
            some[j] = b4[(push.b_offset + min(column + j, push.m - 1) * push.b_step + d) >> 2];
        [[unroll]] for (int r = 0; r < ROWS; ++r) {
            vec4 left = a4[(row_start(r) + d) >> 2];
            [[unroll]] for (int j = 0; j < 4; ++j) sums[r][j] += dot(left, some[j]);
        }
    }
}
#else
void add_one(int d, vec4 some) {
    [[unroll]] for (int r = 0; r < ROWS; ++r)
        sums[r] = fma(vec4(a[row_start(r) + d * push.a_col]), some, sums[r]);
}

void add(int column, int part) {
    int at = push.b_offset + min(column, push.m - 4), d = part;
    for (; d + (AHEAD - 1) * TEAM < push.k; d += AHEAD * TEAM) {
        vec4 some[AHEAD];
        [[unroll]] for (int j = 0; j < AHEAD; ++j) some[j] = b4[(at + (d + j * TEAM) * push.b_step) >> 2];
        [[unroll]] for (int j = 0; j < AHEAD; ++j) add_one(d + j * TEAM, some[j]);
    }
    for (; d < push.k; d += TEAM) add_one(d, b4[(at + d * push.b_step) >> 2]);
}
#endif

// What the lanes of a team found, always joined in the same order; the first gets it.
void join(int four, int part) {
    barrier();  // the last round was read
    [[unroll]] for (int r = 0; r < ROWS; ++r) meeting[r * LANES + part * FOURS + four] = sums[r];
    for (int width = TEAM; width > 1;) {
        int next = (width + 3) / 4;
        barrier();
        if (part < next)
            [[unroll]] for (int r = 0; r < ROWS; ++r) {
                for (int other = part + next; other < width; other += next)
                    sums[r] += meeting[r * LANES + other * FOURS + four];
                meeting[r * LANES + part * FOURS + four] = sums[r];
            }
        width = next;
    }
}

void write(int column, int j) {
    float more = push.bias < 0 ? 0.0 : bias[push.bias + column * push.bias_step];
    [[unroll]] for (int r = 0; r < ROWS; ++r)
        if (r < push.n) {
            float sum = sums[r][j] + more;
            if (push.residual >= 0)
                sum += residual[push.residual + r * push.residual_row + column * push.residual_col];
            c[push.c_offset + r * push.m + column] = activated(sum);
        }
}

void main() {
    int lane = int(gl_LocalInvocationIndex);
    int four = DEEP == 1 ? lane / TEAM : lane % FOURS, part = DEEP == 1 ? lane % TEAM : lane / FOURS;
    int columns = 4 * FOURS;
    for (int group = int(gl_WorkGroupID.x); group * columns < push.m; group += int(gl_NumWorkGroups.x)) {
        int column = group * columns + 4 * four;
        [[unroll]] for (int r = 0; r < ROWS; ++r) sums[r] = vec4(0.0);
        add(column, part);
        join(four, part);
        if (part == 0)
            [[unroll]] for (int j = 0; j < 4; ++j)
                if (column + j < push.m) write(column + j, j);
    }
}
