#version 450
#extension GL_GOOGLE_include_directive : require
// The weights of a convolution as conv_tiles.comp reads them, (G, tap, inner, row): inner filled up to `depths`
// and rows to `pitch` with zeros.
#include "grid.glsl"

layout(push_constant) uniform Push {
    uint groups, rows, pitch, inners, depths;
    uint taps[3];
    int from, group_step, row_step, inner_step;
    int tap_steps[3];
    uint to;
} push;

layout(binding = 0) writeonly buffer To { uint to[]; };
layout(binding = 1) readonly buffer From { uint from[]; };

void main() {
    uint taps = push.taps[0] * push.taps[1] * push.taps[2];
    EACH(i, push.groups * taps * push.depths * push.pitch) {
        uint depth = i / push.pitch, row = i - depth * push.pitch;
        uint tap = depth / push.depths, inner = depth - tap * push.depths;
        uint group = tap / taps, of_group = tap - group * taps;
        uint z = of_group % push.taps[2], y = of_group / push.taps[2] % push.taps[1];
        uint x = of_group / push.taps[2] / push.taps[1];
        int at = push.from + int(group) * push.group_step + int(row) * push.row_step +
                 int(inner) * push.inner_step + int(x) * push.tap_steps[0] + int(y) * push.tap_steps[1] +
                 int(z) * push.tap_steps[2];
        to[push.to + i] = row < push.rows && inner < push.inners ? from[at] : 0u;
    }
}
