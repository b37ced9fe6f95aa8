#version 450
#extension GL_GOOGLE_include_directive : require
// One step of an optimiser for many tensors.
//   -DOP=op_adam -DSTATES=2     the rule, and how many states it keeps of each element
// The tensors are cut into chunks. A chunk is a row of the table: first word of p, of each state and of g, and the
// number of elements. The numbers of the step are read from memory, where a replay finds new ones.

layout(local_size_x_id = 0) in;

layout(binding = 0) buffer P { float p[]; };
#if STATES > 0
layout(binding = 1) buffer S0 { float s0[]; };
#endif
#if STATES > 1
layout(binding = 2) buffer S1 { float s1[]; };
#endif
#if STATES > 2
layout(binding = 3) buffer S2 { float s2[]; };
#endif
layout(binding = STATES + 1) readonly buffer G { float gradient[]; };
layout(binding = STATES + 2) readonly buffer Numbers { float numbers[]; };
layout(binding = STATES + 3) readonly buffer Table { uint table[]; };
layout(push_constant) uniform Push { uint chunks, first_number, first_row; } push;

const uint WIDTH = STATES + 3;  // words of a row

float number(uint which) { return numbers[push.first_number + which]; }

#include "update.glsl"

void main() {
    for (uint chunk = gl_WorkGroupID.x; chunk < push.chunks; chunk += gl_NumWorkGroups.x) {
        uint row = push.first_row + chunk * WIDTH;
        uint at = table[row], from = table[row + STATES + 1], count = table[row + STATES + 2];
        for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
            float new = p[at + i], s[STATES + 1];
#if STATES > 0
            s[0] = s0[table[row + 1] + i];
#endif
#if STATES > 1
            s[1] = s1[table[row + 2] + i];
#endif
#if STATES > 2
            s[2] = s2[table[row + 3] + i];
#endif
            OP(new, gradient[from + i], s);
            p[at + i] = new;
#if STATES > 0
            s0[table[row + 1] + i] = s[0];
#endif
#if STATES > 1
            s1[table[row + 2] + i] = s[1];
#endif
#if STATES > 2
            s2[table[row + 3] + i] = s[2];
#endif
        }
    }
}
