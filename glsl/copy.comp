#version 450
#extension GL_GOOGLE_include_directive : require
// Copies words.  -DWIDE=0: from a strided view into a strided view.  -DWIDE=1: from one dense place to another, both
// on 16 bytes.
#include "grid.glsl"

layout(binding = 0) writeonly buffer To { uint to[]; };
layout(binding = 1) readonly buffer From { uint from[]; };

#if WIDE
layout(binding = 0) writeonly buffer To4 { uvec4 to4[]; };
layout(binding = 1) readonly buffer From4 { uvec4 from4[]; };

layout(push_constant) uniform Push { uint count, to_offset, from_offset; } push;  // words

void main() {
    uint fours = push.count / 4u;
    EACH(i, fours) to4[push.to_offset / 4u + i] = from4[push.from_offset / 4u + i];
    if (gl_GlobalInvocationID.x == 0u)
        for (uint i = fours * 4u; i < push.count; ++i) to[push.to_offset + i] = from[push.from_offset + i];
}
#else
#include "view.glsl"

void main() {
    EACH(i, push.count) to[cell(0, i)] = from[cell(1, i)];
}
#endif
