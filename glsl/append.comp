#version 450
#extension GL_GOOGLE_include_directive : require
// Rows written over others, from a row on that each sample tells. Views: the target at row 0, the new rows.
#define STATUS 3
#define PARAMS int start; int start_step; uint sample_size; int step; int room; uint site;
#include "grid.glsl"
#include "view.glsl"
#include "status.glsl"

layout(binding = 0) writeonly buffer To { uint to[]; };
layout(binding = 1) readonly buffer From { uint from[]; };
layout(binding = 2) readonly buffer Start { int start[]; };

void main() {
    EACH(i, push.count) {
        int first = start[push.start + int(i / push.sample_size) * push.start_step];
        if (first < 0 || first >= push.room)
            report(push.site, first, push.room);
        else
            to[cell(0, i) + first * push.step] = from[cell(1, i)];
    }
}
