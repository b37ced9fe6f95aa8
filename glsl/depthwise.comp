#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Convolution whose groups have one channel each, and its gradients, without products of matrices: reading is
// what takes time. A group has M results' channels; K cells make a window.
//
//   conv         x (N, G, cells), w (G * M, K)       gives (N, G * M, places)
//   conv_input   g (N, G * M, cells), w (G * M, K)   gives (N, G, places)
//   conv_weight  g (N, G * M, places), x (N, G, cells)  gives parts of (G * M, K): a workgroup has a channel of
//                a result, nine cells of its window, and a part of the samples' positions
//
//   -DOP_conv, -DOP_conv_input, -DOP_conv_weight
//   -DTYPE=float -DTYPE3=vec3 -DTYPE4=vec4, or int, ivec3 and ivec4;  -DMASK=255 for uint8, else 0
//   -DSTRIDED=1  conv_input with a step that is not 1
//   -DSQUARE=1   3 x 3 cells, steps and dilations of 1, no third axis: a lane has four results, one below another,
//                which share most of the cells that they meet

layout(push_constant) uniform Push {
    int samples, groups, many;    // N, G, M
    int places[3], taps[3], cells[3];
    int steps[3], dilations[3], lows[3];
    int a, a_row, a_sample;       // w, and in conv_weight g: words between channels and samples
    int b, b_group, b_sample;     // x or g; conv_input: b_group between channels
    int bias, bias_step;          // bias -1: none
    int to, parts, pitch;         // words between parts
} push;

layout(binding = 0) writeonly buffer To { TYPE to[]; };
layout(binding = 1) readonly buffer A { TYPE a[]; };
layout(binding = 2) readonly buffer B { TYPE b[]; };
layout(binding = 3) readonly buffer Bias { TYPE bias[]; };

float mad(float x, float y, float z) { return fma(x, y, z); }
int mad(int x, int y, int z) { return x * y + z; }
#if MASK
#define DONE(v) ((v) & MASK)
#else
#define DONE(v) (v)
#endif

ivec3 triple(int v[3]) { return ivec3(v[0], v[1], v[2]); }
int product(ivec3 v) { return v.x * v.y * v.z; }
bool within(int i, int count) { return uint(i) < uint(count); }

ivec3 unravel(int i, ivec3 lengths) {
    int row = i / lengths.z, plane = row / lengths.y;
    return ivec3(plane, row - plane * lengths.y, i - row * lengths.z);
}

#ifndef OP_conv_weight
#include "grid.glsl"
#define ACTIVATION_ID 1
#include "activation.glsl"

// Which cell a place and a tap meet along an axis, or -1.
int met(int place, int tap, int axis) {
#ifdef OP_conv_input
    int cell = place + push.lows[axis] - tap * push.dilations[axis];
#if STRIDED
    if (cell < 0 || cell % push.steps[axis] != 0) return -1;
    cell /= push.steps[axis];
#endif
    return cell;
#else
    return place * push.steps[axis] - push.lows[axis] + tap * push.dilations[axis];
#endif
}

TYPE summed(ivec3 place, int w, int plane) {
    TYPE sum = TYPE(0);
    for (int x = 0; x < push.taps[0]; ++x) {
        int deep = met(place.x, x, 0);
        for (int y = 0; y < push.taps[1]; ++y) {
            int high = met(place.y, y, 1);
            bool there = within(deep, push.cells[0]) && within(high, push.cells[1]);
            int row = plane + (deep * push.cells[1] + high) * push.cells[2];
            int at = w + (x * push.taps[1] + y) * push.taps[2];
            for (int z = 0; z < push.taps[2]; ++z) {
                int cell = met(place.z, z, 2);
                bool here = there && within(cell, push.cells[2]);
#ifdef OP_conv_input
                if (here) sum = mad(a[at + z], b[row + cell], sum);
#else
                sum = mad(a[at + z], here ? b[row + cell] : TYPE(0), sum);  // NaN where the weight is infinite
#endif
            }
        }
    }
    return sum;
}

#if SQUARE
const int DOWN = 4;

bool is_finite(int v) { return true; }
bool is_finite(float v) { return (floatBitsToUint(v) & 0x7F800000u) != 0x7F800000u; }

#define EACH_WEIGHT(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8)
#ifdef OP_conv_input
#define WEIGHT(k) TYPE weight##k = a[w + 8 - k]; finite = finite && is_finite(weight##k);
#define BEGIN(place, axis) (place) + push.lows[axis] - 2
#else
#define WEIGHT(k) TYPE weight##k = a[w + k];
#define BEGIN(place, axis) (place) - push.lows[axis]
#endif
// Row `r` of the cells is met by the result `j` with row r - j of the weights.
#define MEET(j, k, l, m) \
    sums[j] = mad(weight##k, cell.x, sums[j]), sums[j] = mad(weight##l, cell.y, sums[j]); \
    sums[j] = mad(weight##m, cell.z, sums[j]);
#define CELLS(r) \
    row = plane + (top + r) * push.cells[2] + left; \
    there = within(top + r, push.cells[1]); \
    cell = TYPE3(there && first ? b[row] : TYPE(0), there && second ? b[row + 1] : TYPE(0), \
                 there && third ? b[row + 2] : TYPE(0));

// Sums of four places from this one downwards.
void add_square(ivec3 place, int w, int plane, inout TYPE sums[DOWN]) {
    bool finite = true, there;
    EACH_WEIGHT(WEIGHT)
    if (!finite) {  // products of what is not met would be NaN
        for (int j = 0; j < DOWN; ++j) sums[j] += summed(place + ivec3(0, j, 0), w, plane);
        return;
    }
    int top = BEGIN(place.y, 1), left = BEGIN(place.z, 2), row;
    bool first = within(left, push.cells[2]), second = within(left + 1, push.cells[2]);
    bool third = within(left + 2, push.cells[2]);
    TYPE3 cell;
    CELLS(0) MEET(0, 0, 1, 2)
    CELLS(1) MEET(0, 3, 4, 5) MEET(1, 0, 1, 2)
    CELLS(2) MEET(0, 6, 7, 8) MEET(1, 3, 4, 5) MEET(2, 0, 1, 2)
    CELLS(3) MEET(1, 6, 7, 8) MEET(2, 3, 4, 5) MEET(3, 0, 1, 2)
    CELLS(4) MEET(2, 6, 7, 8) MEET(3, 3, 4, 5)
    CELLS(5) MEET(3, 6, 7, 8)
}
#else
const int DOWN = 1;
void add_square(ivec3 place, int w, int plane, inout TYPE sums[DOWN]) { sums[0] += summed(place, w, plane); }
#endif

void main() {
    ivec3 places = triple(push.places);
    ivec3 blocks = ivec3(places.x, (places.y + DOWN - 1) / DOWN, places.z);
    int size = product(blocks);
#ifdef OP_conv_input
    int channels = push.groups, many = push.many;
#else
    int channels = push.groups * push.many, many = 1;
#endif
    EACH(i, uint(push.samples * channels * size)) {
        int plane = int(i) / size, sample_ = plane / channels, channel = plane - sample_ * channels;
        ivec3 place = unravel(int(i) - plane * size, blocks) * ivec3(1, DOWN, 1);
        TYPE sums[DOWN];
        [[unroll]] for (int j = 0; j < DOWN; ++j) sums[j] = TYPE(0);
        for (int r = 0; r < many; ++r) {
#ifdef OP_conv_input
            int row = channel * many + r, from = row;
#else
            int row = channel, from = channel / push.many;
#endif
            add_square(place, push.a + row * push.a_row, push.b + sample_ * push.b_sample + from * push.b_group,
                       sums);
        }
        TYPE more = push.bias < 0 ? TYPE(0) : bias[push.bias + channel * push.bias_step];
        int at = push.to + plane * product(places) + (place.x * places.y + place.y) * places.z + place.z;
        [[unroll]] for (int j = 0; j < DOWN; ++j)
            if (place.y + j < places.y) to[at + j * places.z] = activated(DONE(sums[j] + more));
    }
}

#else
const int LANES = 128, AT_ONCE = 9;
layout(local_size_x = LANES) in;
shared TYPE sums[AT_ONCE * LANES];

#define EACH_TAP(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8)
#define TAP(k) ivec3 tap##k = unravel(min(first + k, taps - 1), triple(push.taps)) * triple(push.dilations); \
    TYPE sum##k = TYPE(0);
#define ADD(k) { \
        ivec3 cell = start + tap##k; \
        if (all(lessThan(uvec3(cell), cells))) \
            sum##k = mad(left, b[from + (cell.x * push.cells[1] + cell.y) * push.cells[2] + cell.z], sum##k); \
        else sum##k = mad(left, TYPE(0), sum##k); /* which is NaN where left is infinite */ \
    }
#define KEEP(k) sums[k * LANES + lane] = sum##k;

void main() {
    ivec3 places = triple(push.places);
    uvec3 cells = uvec3(triple(push.cells));
    int lane = int(gl_LocalInvocationIndex), size = product(places), taps = product(triple(push.taps));
    int rounds = (taps + AT_ONCE - 1) / AT_ONCE, channels = push.groups * push.many;
    int all_positions = push.samples * size, each = (all_positions + push.parts - 1) / push.parts;
    for (int t = int(gl_WorkGroupID.x); t < channels * rounds * push.parts; t += int(gl_NumWorkGroups.x)) {
        int channel = t / rounds % channels, part = t / rounds / channels, first = t % rounds * AT_ONCE;
        EACH_TAP(TAP)
        for (int i = part * each + lane; i < min(all_positions, (part + 1) * each); i += LANES) {
            int sample_ = i / size, position = i - sample_ * size;
            TYPE left = a[push.a + channel * push.a_row + sample_ * push.a_sample + position];
            int from = push.b + channel / push.many * push.b_group + sample_ * push.b_sample;
            ivec3 start = unravel(position, places) * triple(push.steps) - triple(push.lows);
            EACH_TAP(ADD)
        }
        EACH_TAP(KEEP)
        for (int half_ = LANES / 2; half_ > 0; half_ /= 2) {
            barrier();
            if (lane < half_)
                [[unroll]] for (int k = 0; k < AT_ONCE; ++k)
                    sums[k * LANES + lane] += sums[k * LANES + lane + half_];
        }
        barrier();
        if (lane < AT_ONCE && first + lane < taps)
            to[push.to + part * push.pitch + channel * taps + first + lane] = DONE(sums[lane * LANES]);
        barrier();
    }
}
#endif
