#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Winograd's convolution with 3 x 3 cells (Lavin and Gray, Fast algorithms for convolutional neural networks,
// 2016): SIDE x SIDE results from EDGE x EDGE cells. Between the stages matmul.comp multiplies u @ v for each of
// the EDGE x EDGE spots and each group.
//
//   -DSTAGE_weight  w (O, C/G, 3, 3)  to u (spot, O, C/G)
//   -DSTAGE_input   x (N, C, H, W)    to v (spot, C, N * tiles, filled up to `pitch`)
//   -DSTAGE_output  product (spot, O, pitch), bias  to y (N, O, H', W'), and sums that are not finite again
//   -DSIDE=2 or 4;  -DACTIVATED=1 where an activation is applied, else 0
#include "grid.glsl"

layout(push_constant) uniform Push {
    int samples, groups, rows, inners;  // N of this piece, G, O/G, C/G
    int places[2], cells[2], lows[2], tiles[2];
    int pitch;                          // words between rows of v and of the product
    int w, w_group, w_row, w_inner, w_tap[2];
    int x, x_sample, x_channel;
    int from, bias, bias_step, to;      // bias -1: none
} push;

layout(binding = 0) writeonly buffer To { float to[]; };
layout(binding = 1) readonly buffer From { float from[]; };
layout(binding = 2) readonly buffer X { float x[]; };
layout(binding = 3) readonly buffer W { float w[]; };
layout(binding = 4) readonly buffer Bias { float bias[]; };

const int EDGE = SIDE + 2;

#if SIDE == 2
void input_row(inout float v[EDGE]) {
    v = float[EDGE](v[0] - v[2], v[1] + v[2], v[2] - v[1], v[1] - v[3]);
}
void weight_row(float a, float b, float c, out float v[EDGE]) {
    v = float[EDGE](a, 0.5 * (a + b + c), 0.5 * (a - b + c), c);
}
void output_row(float v[EDGE], out float r[SIDE]) {
    r = float[SIDE](v[0] + v[1] + v[2], v[1] - v[2] - v[3]);
}
#else
void input_row(inout float v[EDGE]) {
    float even = v[4] - 4.0 * v[2], odd = v[3] - 4.0 * v[1], near = v[4] - v[2], far = 2.0 * (v[3] - v[1]);
    v = float[EDGE](4.0 * v[0] - 5.0 * v[2] + v[4], even + odd, even - odd, near + far, near - far,
                    4.0 * v[1] - 5.0 * v[3] + v[5]);
}
void weight_row(float a, float b, float c, out float v[EDGE]) {
    float near = (a + c) / -6.0, far = a / 24.0 + c / 6.0;
    v = float[EDGE](0.25 * a, near - b / 6.0, near + b / 6.0, far + b / 12.0, far - b / 12.0, c);
}
void output_row(float v[EDGE], out float r[SIDE]) {
    float near = v[1] + v[2], apart = v[1] - v[2], far = v[3] + v[4], wide = v[3] - v[4];
    r = float[SIDE](v[0] + near + far, apart + 2.0 * wide, near + 4.0 * far, apart + 8.0 * wide + v[5]);
}
#endif

bool inside(int row, int column) {
    return row >= 0 && row < push.cells[0] && column >= 0 && column < push.cells[1];
}

#ifdef STAGE_weight
void main() {
    int rows = push.groups * push.rows;
    EACH(i, uint(rows * push.inners)) {
        int row = int(i) / push.inners, inner = int(i) - row * push.inners, group = row / push.rows;
        int at = push.w + group * push.w_group + (row - group * push.rows) * push.w_row + inner * push.w_inner;
        float half_[3][EDGE], line[EDGE];
        [[unroll]] for (int r = 0; r < 3; ++r) {
            int begin = at + r * push.w_tap[0];
            weight_row(w[begin], w[begin + push.w_tap[1]], w[begin + 2 * push.w_tap[1]], half_[r]);
        }
        [[unroll]] for (int c = 0; c < EDGE; ++c) {
            weight_row(half_[0][c], half_[1][c], half_[2][c], line);
            [[unroll]] for (int r = 0; r < EDGE; ++r)
                to[push.to + ((r * EDGE + c) * rows) * push.inners + int(i)] = line[r];
        }
    }
}
#endif

#ifdef STAGE_input
void main() {
    int channels = push.groups * push.inners, tiles = push.tiles[0] * push.tiles[1];
    EACH(i, uint(channels * push.pitch)) {
        int channel = int(i) / push.pitch, t = int(i) - channel * push.pitch, sample_ = t / tiles;
        int tile = t - sample_ * tiles, down = tile / push.tiles[1], across = tile - down * push.tiles[1];
        int top = down * SIDE - push.lows[0], left = across * SIDE - push.lows[1];
        int at = push.x + sample_ * push.x_sample + channel * push.x_channel;
        float cells[EDGE][EDGE], line[EDGE];
        [[unroll]] for (int r = 0; r < EDGE; ++r) {
            [[unroll]] for (int c = 0; c < EDGE; ++c)
                cells[r][c] = sample_ < push.samples && inside(top + r, left + c)
                                  ? x[at + (top + r) * push.cells[1] + left + c] : 0.0;
            input_row(cells[r]);
        }
        [[unroll]] for (int c = 0; c < EDGE; ++c) {
            [[unroll]] for (int r = 0; r < EDGE; ++r) line[r] = cells[r][c];
            input_row(line);
            [[unroll]] for (int r = 0; r < EDGE; ++r)
                to[push.to + (r * EDGE + c) * channels * push.pitch + int(i)] = line[r];
        }
    }
}
#endif

#ifdef STAGE_output
#define ACTIVATION_ID 1
#include "activation.glsl"

bool is_finite(float v) { return (floatBitsToUint(v) & 0x7F800000u) != 0x7F800000u; }

// The sum itself: what is not finite spoils all results of its tile, and not only those that meet it.
float summed(int sample_, int channel, int row, int column) {
    int group = channel / push.rows;
    int at = push.w + group * push.w_group + (channel - group * push.rows) * push.w_row;
    int plane = push.x + sample_ * push.x_sample + group * push.inners * push.x_channel;
    float sum = 0.0;
    for (int i = 0; i < push.inners; ++i)
        for (int k = 0; k < 9; ++k) {
            int r = row - push.lows[0] + k / 3, c = column - push.lows[1] + k % 3;
            float weight = w[at + i * push.w_inner + k / 3 * push.w_tap[0] + k % 3 * push.w_tap[1]];
#if STRICT
            if (inside(r, c)) sum += weight * x[plane + i * push.x_channel + r * push.cells[1] + c];
#else
            sum += weight * (inside(r, c) ? x[plane + i * push.x_channel + r * push.cells[1] + c] : 0.0);
#endif
        }
    return sum;
}

void main() {
    int channels = push.groups * push.rows, tiles = push.tiles[0] * push.tiles[1];
    EACH(i, uint(channels * push.samples * tiles)) {
        int channel = int(i) / (push.samples * tiles), t = int(i) - channel * push.samples * tiles;
        int sample_ = t / tiles, tile = t - sample_ * tiles, down = tile / push.tiles[1];
        int top = down * SIDE, left = (tile - down * push.tiles[1]) * SIDE;
        int at = push.from + channel * push.pitch + t;
        float half_[EDGE][SIDE], line[EDGE], results[SIDE];
        [[unroll]] for (int r = 0; r < EDGE; ++r) {
            [[unroll]] for (int c = 0; c < EDGE; ++c)
                line[c] = from[at + (r * EDGE + c) * channels * push.pitch];
            output_row(line, half_[r]);
        }
        float more = push.bias < 0 ? 0.0 : bias[push.bias + channel * push.bias_step];
        int begin = push.to + (sample_ * channels + channel) * push.places[0] * push.places[1];
        [[unroll]] for (int c = 0; c < SIDE; ++c) {
            [[unroll]] for (int r = 0; r < EDGE; ++r) line[r] = half_[r][c];
            output_row(line, results);
            [[unroll]] for (int r = 0; r < SIDE; ++r)
                if (top + r < push.places[0] && left + c < push.places[1]) {
                    float sum = results[r];
                    if (!is_finite(sum)) sum = summed(sample_, channel, top + r, left + c);
                    to[begin + (top + r) * push.places[1] + left + c] = activated(sum + more);
                }
        }
    }
}
#endif
