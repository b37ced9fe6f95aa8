#version 450
#extension GL_GOOGLE_include_directive : require
// Non-maximum suppression, a block of boxes after another; see tinyadept/ops/suppress.py.
//   inside 1   the boxes of a block, which all earlier blocks have judged already, judge each other in turn
//   inside 0   those of a block that stay judge all later boxes
// Before the first block, all stay.
#include "grid.glsl"

layout(binding = 0) buffer To { uint to[]; };
layout(binding = 1) readonly buffer Boxes { float boxes[]; };

layout(push_constant) uniform Push {
    int count, to_offset, offset, row, column;
    float threshold;
    int first, last, inside;  // the block
} push;

vec4 box(int i) {
    int at = push.offset + i * push.row, step = push.column;
    return vec4(boxes[at], boxes[at + step], boxes[at + 2 * step], boxes[at + 3 * step]);
}

float area(vec4 b) { return (b.z - b.x) * (b.w - b.y); }

bool overlap(vec4 a, vec4 b) {
    vec2 sides = max(min(a.zw, b.zw) - max(a.xy, b.xy), vec2(0.0));
    float shared_area = sides.x * sides.y;
    return shared_area > push.threshold * (area(a) + area(b) - shared_area);
}

void main() {
    if (push.inside == 1) {  // one workgroup
        for (int i = push.first; i < push.last; ++i) {
            barrier();
            memoryBarrierBuffer();
            if (to[push.to_offset + i] == 0u) continue;
            vec4 first = box(i);
            for (int j = i + 1 + int(gl_LocalInvocationID.x); j < push.last; j += int(gl_WorkGroupSize.x))
                if (overlap(first, box(j))) to[push.to_offset + j] = 0u;
        }
        return;
    }
    EACH(k, uint(push.count - push.last)) {
        int j = push.last + int(k);
        vec4 later = box(j);
        for (int i = push.first; i < push.last; ++i)
            if (to[push.to_offset + i] != 0u && overlap(box(i), later)) to[push.to_offset + j] = 0u;
    }
}
