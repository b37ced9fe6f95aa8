#version 450
#extension GL_GOOGLE_include_directive : require
// Where elements are not zero, in order. A prefix sum by parts of 64: each lane walks one part.
//   -DSTEP=COUNT   how many there are in each part of the mask
//   -DSTEP=ADD     sums of parts of counts
//   -DSTEP=SPREAD  counts become how many came before, given that of each part of them
//   -DSTEP=FIND    flat positions
//   -DSTEP=SPLIT   positions along each axis
#define COUNT 0
#define ADD 1
#define SPREAD 2
#define FIND 3
#define SPLIT 4

const uint PART = 64u;

#if STEP == COUNT || STEP == FIND
#define VIEWS 1
#define PARAMS uint bits; int to; int before; uint found;
#include "grid.glsl"
#include "view.glsl"

layout(binding = 0) writeonly buffer To { uint to[]; };
layout(binding = 1) readonly buffer Mask { uint mask[]; };
#if STEP == FIND
layout(binding = 2) readonly buffer Before { uint before[]; };
#endif

void main() {
    EACH(part, (push.count + PART - 1u) / PART) {
#if STEP == COUNT
        uint at = 0u;
#else
        uint at = before[push.before + int(part)];
#endif
        for (uint i = part * PART; i < min(push.count, (part + 1u) * PART); ++i)
            if ((mask[cell(0, i)] & push.bits) != 0u) {
#if STEP == FIND
                if (at < push.found) to[push.to + int(at)] = i;
#endif
                ++at;
            }
#if STEP == COUNT
        to[push.to + int(part)] = at;
#endif
    }
}

#elif STEP == SPLIT
#include "grid.glsl"

layout(binding = 0) writeonly buffer To { uint to[]; };
layout(binding = 1) readonly buffer Flat { uint flat_position[]; };

// steps[a]: elements that one step along axis a passes over.
layout(push_constant) uniform Push { uint count, rank, to, from, steps[25]; } push;

void main() {
    EACH(i, push.count) {
        uint row = i / push.rank, axis = i - row * push.rank;
        uint at = flat_position[push.from + row];
        if (axis > 0u) at %= push.steps[axis - 1u];
        to[push.to + i] = at / push.steps[axis];
    }
}

#else
#include "grid.glsl"

#if STEP == ADD
layout(binding = 0) writeonly buffer To { uint to[]; };
layout(binding = 1) readonly buffer Counts { uint counts[]; };
#else
layout(binding = 0) buffer Counts { uint counts[]; };
layout(binding = 1) readonly buffer Before { uint before[]; };
#endif

// other: -1 where nothing came before.
layout(push_constant) uniform Push { uint count; int counts, other; } push;

void main() {
    EACH(part, (push.count + PART - 1u) / PART) {
#if STEP == ADD
        uint sum = 0u;
#else
        uint sum = push.other < 0 ? 0u : before[push.other + int(part)];
#endif
        for (uint i = part * PART; i < min(push.count, (part + 1u) * PART); ++i) {
            uint here = counts[push.counts + int(i)];
#if STEP == SPREAD
            counts[push.counts + int(i)] = sum;
#endif
            sum += here;
        }
#if STEP == ADD
        to[push.other + int(part)] = sum;
#endif
    }
}
#endif
