#version 450
#extension GL_GOOGLE_include_directive : require
// start + i · step.
//   -DKIND=0: integers, modulo 2³².  1: floats, from terms that are doubles.  2: those, cut to integers.
//   -DOUT=INT32, UINT8, BOOL or FLOAT32
#include "grid.glsl"
#include "math.glsl"

#define BOOL 0
#define UINT8 1
#define INT32 2
#define FLOAT32 3

layout(binding = 0) writeonly buffer To { uint to[]; };

#if KIND == 0
layout(push_constant) uniform Push { uint count, offset, start, step; } push;

uint value(uint i) { return push.start + i * push.step; }
#else
// Each double comes as the sum of two floats. Of a result 45 bits are right before it is rounded to 24.
layout(push_constant) uniform Push { uint count, offset; float start, start_low, step, step_low; } push;

vec2 plus(vec2 a, vec2 b) {
    vec2 sum = two_sum(a.x, b.x);
    precise float lost = sum.y + (a.y + b.y);
    return two_sum(sum.x, lost);
}

vec2 term(uint i) {  // the halves of i are exact floats
    vec2 step = vec2(push.step, push.step_low), start = vec2(push.start, push.start_low);
    vec2 high = pair_product(step, vec2(float(i & 0xFFFFF000u), 0.0));
    vec2 low = pair_product(step, vec2(float(i & 0xFFFu), 0.0));
    return plus(start, plus(high, low));
}

#if KIND == 1
uint value(uint i) {
    vec2 x = term(i);
    precise float sum = x.x + x.y;
    return floatBitsToUint(sum);
}
#else
uint value(uint i) {
    vec2 x = term(i);
    float whole = trunc(x.x);
    if (whole == x.x) whole += whole > 0.0 && x.y < 0.0 ? -1.0 : whole < 0.0 && x.y > 0.0 ? 1.0 : 0.0;
    return uint(int(whole));
}
#endif
#endif

void main() {
    EACH(i, push.count) {
        uint word = value(i);
#if OUT == UINT8
        word &= 255u;
#elif OUT == BOOL
        word = min(word, 1u);
#endif
        to[push.offset + i] = word;
    }
}
