#version 450
#extension GL_GOOGLE_include_directive : require
// One link of a chain in which every element depends on what another invocation wrote last.
// An index out of range is reported, and the last element read instead.
#define STATUS 2
#include "grid.glsl"
#include "status.glsl"

layout(binding = 0) writeonly buffer To { float to[]; };
layout(binding = 1) readonly buffer From { float from[]; };

layout(push_constant) uniform Push { uint count, to_offset, from_offset, site; int shift; } push;

void main() {
    EACH(i, push.count) {
        int at = int(push.count - 1u - i) + push.shift;
        if (at >= int(push.count)) {
            report(push.site, at, int(push.count));
            at = int(push.count) - 1;
        }
        to[push.to_offset + i] = from[push.from_offset + uint(at)] + 1.0;
    }
}
