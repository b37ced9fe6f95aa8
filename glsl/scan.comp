#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Running sums along lines. A workgroup has SCAN_LANES lanes for each line, which walk it in chunks of
// ITEMS elements a lane. Long lines are cut into parts; glsl/reduce.comp has then left the sum of each.
//   -DOP_cumsum -DFLOATING=1    see reduce.glsl
//   -DCARRY=1                   lines come in parts

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const int SCAN_LANES = 1;
layout(constant_id = 2) const int RANK = 0;     // axes, the line's own apart
layout(constant_id = 3) const int BESIDE = 0;   // 1: neighbouring lanes have neighbouring lines

const int MAX_AXES = 7, ITEMS = 4;
const int LINES = int(gl_WorkGroupSize.x) / SCAN_LANES;

layout(push_constant) uniform Push {
    int lines, elements, parts;
    int to_offset, from_offset, states_offset;
    int to_step, from_step;  // along a line
    int shape[MAX_AXES], to_strides[MAX_AXES], from_strides[MAX_AXES];
} push;

#include "reduce.glsl"

layout(binding = 0) writeonly buffer To { uint to[]; };
layout(binding = 1) readonly buffer From { uint from[]; };
#if CARRY
layout(std430, binding = 2) readonly buffer States { State states[]; };
#endif

shared State meeting[2 * gl_WorkGroupSize.x];

ivec2 line_start(int line) {
    ivec2 at = ivec2(push.to_offset, push.from_offset);
    for (int axis = RANK - 1; axis >= 0; --axis) {
        int rest = line / push.shape[axis], index = line - rest * push.shape[axis];
        at += index * ivec2(push.to_strides[axis], push.from_strides[axis]);
        line = rest;
    }
    return at;
}

// What the lanes before this one hold; `total` becomes what all lanes hold.
State before(State own, int lane, int line, out State total) {
    total = own;
    if (SCAN_LANES == 1) return nothing();
    int side = 0;
    barrier();  // the last round has been read
    meeting[lane * LINES + line] = own;
    barrier();
    for (int reach = 1; reach < SCAN_LANES; reach *= 2) {  // Hillis and Steele
        State s = meeting[(side + lane) * LINES + line];
        if (lane >= reach) s = merged(meeting[(side + lane - reach) * LINES + line], s);
        side = SCAN_LANES - side;
        meeting[(side + lane) * LINES + line] = s;
        barrier();
    }
    total = meeting[(side + SCAN_LANES - 1) * LINES + line];
    return lane == 0 ? nothing() : meeting[(side + lane - 1) * LINES + line];
}

// The sum of the parts before this one, which the lanes of a line share out.
State carried(int part, int index, int lane, int line) {
    State s = nothing();
#if CARRY
    if (index < push.lines)
        for (int p = lane; p < part; p += SCAN_LANES)
            s = merged(s, states[push.states_offset + p * push.lines + index]);
    State total;
    before(s, lane, line, total);
    s = total;
#endif
    return s;
}

void main() {
    int invocation = int(gl_LocalInvocationID.x);
    int lane = BESIDE == 1 ? invocation / LINES : invocation % SCAN_LANES;
    int line = BESIDE == 1 ? invocation % LINES : invocation / SCAN_LANES;
    int tiles = (push.lines + LINES - 1) / LINES, length = (push.elements + push.parts - 1) / push.parts;
    for (int task = int(gl_WorkGroupID.x); task < tiles * push.parts; task += int(gl_NumWorkGroups.x)) {
        int part = task / tiles, index = (task - part * tiles) * LINES + line;
        ivec2 start = line_start(min(index, push.lines - 1));
        int end = min(push.elements, (part + 1) * length), last = index < push.lines ? end : 0;
        State carry = carried(part, index, lane, line);
        for (int chunk = part * length; chunk < end; chunk += SCAN_LANES * ITEMS) {
            State sums[ITEMS], own = nothing(), total;
            int first = chunk + lane * ITEMS;
            [[unroll]] for (int k = 0; k < ITEMS; ++k) {
                if (first + k < last) take(own, from[start.y + (first + k) * push.from_step], 0, 0u);
                sums[k] = own;
            }
            State base = merged(carry, before(own, lane, line, total));
            [[unroll]] for (int k = 0; k < ITEMS; ++k) {
                uint word = finished(merged(base, sums[k]), vec2(0.0), vec2(0.0));
                if (first + k < last) to[start.x + (first + k) * push.to_step] = word;
            }
            carry = merged(carry, total);
        }
    }
}
