#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Several inputs side by side in the rows of a dense result. Of each input the words of a row lie one after another.
//   -DWIDTH=4   all numbers of the host count fours of words; else 1
#include "grid.glsl"

const int PARTS = 7;  // inputs at once; drivers/copying.py has the same

#if WIDTH == 4
#define WORDS uvec4
#else
#define WORDS uint
#endif
layout(binding = 0) writeonly buffer To { WORDS to[]; };
layout(binding = 1) readonly buffer From { WORDS from[]; };

layout(push_constant) uniform Push {
    uint rows, width;  // of a row, the words of these inputs
    int to_offset, pitch;
    int offsets[PARTS], steps[PARTS], columns[PARTS], lengths[PARTS];  // the step is from row to row
} push;

void main() {
    EACH(i, push.rows * push.width) {
        int row = int(i / push.width), at = int(i) - row * int(push.width);
        int source = 0, target = 0;
        bool found = false;
        [[unroll]] for (int part = 0; part < PARTS; ++part) {
            if (!found && at < push.lengths[part]) {
                source = push.offsets[part] + row * push.steps[part] + at;
                target = push.to_offset + row * push.pitch + push.columns[part] + at;
                found = true;
            }
            if (!found) at -= push.lengths[part];
        }
        to[target] = from[source];
    }
}
