#version 450
#extension GL_GOOGLE_include_directive : require
// Sums of values that share a key, in order. Pairs (key, place of the value) are sorted, line by line;
// where a run of equal keys begins, it is summed, and written to the place of its key. Views: that of key
// 0, the place of the line's values, and the pair itself, whose memory counts pairs.
//   -DIN=FLOAT32, INT32, UINT8 or BOOL
// A run may be longer than a lane can loop: it is added in pieces, by several dispatches. Meanwhile the
// result holds the sum, and `lost` what that has lost to rounding.
#define BOOL 0
#define UINT8 1
#define INT32 2
#define FLOAT32 3

#define VIEWS 3
#define PARAMS int step; int width; int lost; uint piece;
#include "grid.glsl"
#include "view.glsl"
#include "math.glsl"

layout(constant_id = 2) const int PIECE = 1 << 30;
const uint LAST = 0x80000000u;        // a bit of `piece`
const uint NO_KEY = 0xFFFFFFFFu;      // of an index that was out of range

layout(binding = 0) buffer To { uint to[]; };
layout(binding = 1) buffer Lost { uint lost[]; };
layout(binding = 2) readonly buffer Values { uint values[]; };
layout(binding = 3) readonly buffer Pairs { uvec2 pairs[]; };

#if IN == FLOAT32
#define T vec2  // the sum, and what it lost
T state(uint i, uint before) {
    return vec2(uintBitsToFloat(before), uintBitsToFloat(lost[uint(push.lost) + i]));
}
T added(T sum, uint word) {
    vec2 both = two_sum(sum.x, uintBitsToFloat(word));
    if (is_infinite(both.x)) return vec2(both.x, 0.0);  // what it has lost would be NaN
    return two_sum(both.x, both.y + sum.y);
}
void keep(uint i, T sum) { lost[uint(push.lost) + i] = floatBitsToUint(sum.y); }
uint rounded(T sum) { return floatBitsToUint(sum.x + sum.y); }
uint plain(T sum) { return floatBitsToUint(sum.x); }
#else
#define T uint
T state(uint i, uint before) { return before; }
void keep(uint i, T sum) {}
uint plain(T sum) { return sum; }
#if IN == BOOL
T added(T sum, uint word) { return sum | word; }
#else
T added(T sum, uint word) { return sum + word; }
#endif
#if IN == UINT8
uint rounded(T sum) { return sum & 255u; }
#else
uint rounded(T sum) { return sum; }
#endif
#endif

void main() {
    bool last = (push.piece & LAST) != 0u;
    int begin = int(push.piece & ~LAST) * PIECE;
    EACH(i, push.count) {
        int head = cell(2, i), inside = (head - push.views[2].offset) % push.width;
        uint key = pairs[head].x;
        if (key == NO_KEY || (inside > 0 && pairs[head - 1].x == key)) continue;
        int target = cell(0, i) + int(key) * push.step, first = cell(1, i);
        int end = head - inside + push.width;
        T sum = begin == 0 ? T(0) : state(i, to[target]);
        for (int pair = head + begin; pair < min(end, head + begin + PIECE); ++pair) {
            if (pairs[pair].x != key) break;
            sum = added(sum, values[first + int(pairs[pair].y)]);
        }
        if (!last) keep(i, sum);
        to[target] = last ? rounded(sum) : plain(sum);
    }
}
