#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Adds the parts of products whose inner axis was cut, always in the same order, and applies an activation. All
// parts, and the result, start on 16 bytes.
//   -DTYPE=float -DTYPE4=vec4, or int and ivec4;  -DMASK=255 for bytes, else 0
//   -DACTIVATED=1 where an activation is applied, else 0
#include "grid.glsl"
#define ACTIVATION_ID 1
#include "activation.glsl"

layout(binding = 0) writeonly buffer To { TYPE to[]; };
layout(binding = 0) writeonly buffer To4 { TYPE4 to4[]; };
layout(binding = 1) readonly buffer Parts { TYPE parts[]; };
layout(binding = 1) readonly buffer Parts4 { TYPE4 parts4[]; };

layout(push_constant) uniform Push { uint count, to_offset, offset, pitch, splits; } push;  // words

#if MASK
#define DONE(v) ((v) & MASK)
#else
#define DONE(v) (v)
#endif
const uint AHEAD = 8u;  // parts that are read before any is added

void main() {
    uint fours = push.count / 4u;
    EACH(i, fours) {
        uint at = push.offset / 4u + i, step = push.pitch / 4u, s = 1u;
        TYPE4 sum = parts4[at];
        for (; s + AHEAD <= push.splits; s += AHEAD) {
            TYPE4 next[AHEAD];
            [[unroll]] for (uint k = 0u; k < AHEAD; ++k) next[k] = parts4[at + (s + k) * step];
            [[unroll]] for (uint k = 0u; k < AHEAD; ++k) sum += next[k];
        }
        for (; s < push.splits; ++s) sum += parts4[at + s * step];
        to4[push.to_offset / 4u + i] = activated(DONE(sum));
    }
    uint last = 4u * fours + gl_GlobalInvocationID.x;
    if (last < push.count) {
        TYPE sum = parts[push.offset + last];
        for (uint s = 1u; s < push.splits; ++s) sum += parts[push.offset + s * push.pitch + last];
        to[push.to_offset + last] = activated(DONE(sum));
    }
}
