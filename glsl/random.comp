#version 450
#extension GL_GOOGLE_include_directive : require
// Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC11): block j of four words
// depends on the key and on counter + j alone.
//   -DOP_random_bits, -DOP_uniform, -DOP_normal: what the words become
//   -DOP_advance: the counter moves on
#include "grid.glsl"

#if defined(OP_advance)

layout(binding = 0) buffer State { uint state[]; };
layout(push_constant) uniform Push { int offset[4]; uint blocks_low, blocks_high; } push;

void main() {
    if (gl_GlobalInvocationID.x > 0u) return;
    uint carry;
    state[push.offset[2]] = uaddCarry(state[push.offset[2]], push.blocks_low, carry);
    state[push.offset[3]] += push.blocks_high + carry;
}

#else

layout(binding = 0) writeonly buffer To { uint to[]; };
layout(binding = 0) writeonly buffer To4 { uvec4 to4[]; };
layout(binding = 1) readonly buffer State { uint state[]; };
layout(push_constant) uniform Push { uint count, to_offset; int offset[4]; } push;  // the result begins on 16 bytes

uvec4 philox(uvec2 key, uvec4 c) {
    for (int round = 0; round < 10; ++round) {
        uint high0, low0, high2, low2;
        umulExtended(0xD2511F53u, c.x, high0, low0);
        umulExtended(0xCD9E8D57u, c.z, high2, low2);
        c = uvec4(high2 ^ c.y ^ key.x, low2, high0 ^ c.w ^ key.y, low0);
        key += uvec2(0x9E3779B9u, 0xBB67AE85u);
    }
    return c;
}

#if defined(OP_random_bits)
uvec4 values(uvec4 words) { return words; }
#elif defined(OP_uniform)
uvec4 values(uvec4 words) { return floatBitsToUint(vec4(words >> 8) * exp2(-24.0)); }
#elif defined(OP_normal)
#include "math.glsl"

// Box and Muller's transform. A 24-bit fraction of a turn is reduced to an octant before it is rounded. 2π
// is a double in the definition, which shows at quarter turns: their small cosine and sine are what 2π
// lacks.
vec2 normal_pair(uvec2 words) {
    float radius = math_sqrt(-2.0 * math_log(float((words.x >> 8) + 1u) * exp2(-24.0)));
    uint turn = words.y >> 8, quarter = (turn + (1u << 21)) >> 22;
    float rest = float(int(turn) - int(quarter << 22));
    precise float angle = rest * 3.74507039e-7 - float(quarter) * 6.12323400e-17;
    float c = cos_series(angle), s = sin_series(angle);
    vec2 direction = (quarter & 1u) == 0u ? vec2(c, s) : vec2(-s, c);
    return radius * ((quarter & 2u) == 0u ? direction : -direction);
}

uvec4 values(uvec4 words) { return floatBitsToUint(vec4(normal_pair(words.xy), normal_pair(words.zw))); }
#endif

void main() {
    uvec2 key = uvec2(state[push.offset[0]], state[push.offset[1]]);
    uvec2 counter = uvec2(state[push.offset[2]], state[push.offset[3]]);
    EACH(block, (push.count + 3u) / 4u) {
        uint carry;
        uint low = uaddCarry(counter.x, block, carry);
        uvec4 four = values(philox(key, uvec4(low, counter.y + carry, 0u, 0u)));
        uint left = push.count - block * 4u;
        if (left >= 4u)
            to4[push.to_offset / 4u + block] = four;
        else
            for (uint k = 0u; k < left; ++k) to[push.to_offset + block * 4u + k] = four[k];
    }
}
#endif
