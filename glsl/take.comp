#version 450
#extension GL_GOOGLE_include_directive : require
// Elements that an index points at: out[i] = from[cell of i + reach of index[i]], with a dense result.
//   -DPLANES=0: along one axis.  1: over three, whose flattened position the index gives.
#define STATUS 3
#define PARAMS int to; int size; uint site; int steps[3]; int lengths[2];
#include "grid.glsl"
#include "view.glsl"
#include "status.glsl"

layout(binding = 0) writeonly buffer To { uint to[]; };
layout(binding = 1) readonly buffer From { uint from[]; };
layout(binding = 2) readonly buffer Index { int index[]; };

int reach(int at) {
#if PLANES
    int row = at / push.lengths[1], plane = row / push.lengths[0];
    return plane * push.steps[0] + (row - plane * push.lengths[0]) * push.steps[1] +
           (at - row * push.lengths[1]) * push.steps[2];
#else
    return at * push.steps[2];
#endif
}

void main() {
    EACH(i, push.count) {
        int at = index[cell(1, i)];
        uint word = 0u;
        if (at < 0 || at >= push.size)
            report(push.site, at, push.size);
        else
            word = from[cell(0, i) + reach(at)];
        to[push.to + int(i)] = word;
    }
}
