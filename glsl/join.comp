#version 450
#extension GL_GOOGLE_include_directive : require
// Adds the parts of a matrix product whose inner axis was cut, always in the same order; all start on 16 bytes.
#include "grid.glsl"

layout(binding = 0) writeonly buffer To { float to[]; };
layout(binding = 0) writeonly buffer To4 { vec4 to4[]; };
layout(binding = 1) readonly buffer Parts { float parts[]; };
layout(binding = 1) readonly buffer Parts4 { vec4 parts4[]; };

layout(push_constant) uniform Push { uint count, to_offset, offset, pitch, splits; } push;  // words

void main() {
    uint fours = push.count / 4u;
    EACH(i, fours) {
        vec4 sum = parts4[push.offset / 4u + i];
        for (uint s = 1u; s < push.splits; ++s) sum += parts4[(push.offset + s * push.pitch) / 4u + i];
        to4[push.to_offset / 4u + i] = sum;
    }
    if (gl_GlobalInvocationID.x == 0u)
        for (uint i = fours * 4u; i < push.count; ++i) {
            float sum = parts[push.offset + i];
            for (uint s = 1u; s < push.splits; ++s) sum += parts[push.offset + s * push.pitch + i];
            to[push.to_offset + i] = sum;
        }
}
