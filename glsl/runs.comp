#version 450
#extension GL_GOOGLE_include_directive : require
// Sums of values that share a key. Their pairs (key, place of the value) are sorted, line by line.
//   -DSTEP=STARTS  starts[line][k]: the first pair of the line whose key is k or more, for k from 0 to `size`
//   -DSTEP=SUM     the sum over each run, in order. Views: the result, the place of the line's values, and the starts
//   -DIN=FLOAT32, INT32, UINT8 or BOOL
#define STARTS 0
#define SUM 1
#define BOOL 0
#define UINT8 1
#define INT32 2
#define FLOAT32 3

#if STEP == STARTS
#include "grid.glsl"

layout(binding = 0) writeonly buffer Starts { uint starts[]; };
layout(binding = 1) readonly buffer Pairs { uvec2 pairs[]; };

layout(push_constant) uniform Push { uint count, size, width, to, from; } push;

void main() {
    EACH(i, push.count) {
        uint line = i / (push.size + 1u), key = i - line * (push.size + 1u);
        uint low = line * push.width, high = low + push.width;
        while (low < high) {
            uint middle = (low + high) / 2u;
            if (pairs[push.from + middle].x < key)
                low = middle + 1u;
            else
                high = middle;
        }
        starts[push.to + i] = low;
    }
}

#else
// A run may be longer than a lane can loop: it is added piece by piece, by several dispatches. Meanwhile the result
// holds the sum, and `starts` behind its table what the sum has lost to rounding.
#define VIEWS 3
#define PARAMS uint pairs; uint lost; uint begin; uint end;
#include "grid.glsl"
#include "view.glsl"
#include "math.glsl"

const uint WHOLE = 0x7FFFFFFFu;  // `end` of the last piece

layout(binding = 0) buffer To { uint to[]; };
layout(binding = 1) buffer Starts { uint starts[]; };
layout(binding = 2) readonly buffer Values { uint values[]; };
layout(binding = 3) readonly buffer Pairs { uvec2 pairs[]; };

uint value(int first, uint pair) { return values[first + int(pairs[push.pairs + pair].y)]; }

#if IN == FLOAT32
#define T vec2  // the sum, and what it lost
T state(uint i, uint before) { return vec2(uintBitsToFloat(before), uintBitsToFloat(starts[push.lost + i])); }
T added(T sum, uint word) {
    vec2 both = two_sum(sum.x, uintBitsToFloat(word));
    if (is_infinite(both.x)) return vec2(both.x, 0.0);  // what it has lost would be NaN
    return two_sum(both.x, both.y + sum.y);
}
void keep(uint i, T sum) { starts[push.lost + i] = floatBitsToUint(sum.y); }
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
    EACH(i, push.count) {
        int at = cell(2, i), target = cell(0, i), first = cell(1, i);
        uint pair = starts[at] + push.begin, last = min(starts[at + 1], starts[at] + push.end);
        T sum = push.begin == 0u ? T(0) : state(i, to[target]);
        for (; pair < last; ++pair) sum = added(sum, value(first, pair));
        bool last_piece = push.end == WHOLE;
        if (!last_piece) keep(i, sum);
        to[target] = last_piece ? rounded(sum) : plain(sum);
    }
}
#endif
