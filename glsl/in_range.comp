#version 450
#extension GL_GOOGLE_include_directive : require
// Indices that may count from the end become ones that do not; those outside [lowest, size) are reported.
#define VIEWS 1
#define STATUS 2
#define PARAMS int to; int lowest; int size; uint site;
#include "grid.glsl"
#include "view.glsl"
#include "status.glsl"

layout(binding = 0) writeonly buffer To { int to[]; };
layout(binding = 1) readonly buffer Index { int index[]; };

void main() {
    EACH(i, push.count) {
        int at = index[cell(0, i)];
        if (at < push.lowest || at >= push.size) {
            report(push.site, at, push.size);
            at = 0;
        }
        to[push.to + int(i)] = at < 0 ? at + push.size : at;
    }
}
