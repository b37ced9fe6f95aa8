#version 450
#extension GL_GOOGLE_include_directive : require
// Passes of a stable merge sort of pairs (key, payload): many lines of one length at once.
//   -DSTEP=RUNS    reads keys and payloads, and sorts runs of 8, each in the registers of one lane: for CPUs
//   -DSTEP=CHUNKS  reads them, and sorts as much of a line as fits shared memory: for GPUs
//   -DSTEP=MERGE   merges neighbouring runs
//   -DKEYS=FLOAT32, INT32, WORD (bool and uint8) or INDEX (checked against `size`)
#define RUNS 0
#define CHUNKS 1
#define MERGE 2
#define WORD 0
#define INT32 1
#define FLOAT32 2
#define INDEX 3

#if STEP == CHUNKS
layout(constant_id = 2) const uint CHUNK = 1024;
shared uvec2 cells[CHUNK];
#define CELL(i) cells[i]
#elif STEP == MERGE
layout(binding = 1) readonly buffer From { uvec2 from[]; };
layout(push_constant) uniform Push { uint count, width, run, to, from; } push;
#define CELL(i) from[push.from + (i)]
#endif
layout(binding = 0) writeonly buffer To { uvec2 to[]; };

#ifdef CELL
// Where cell `at` goes when runs are merged two by two. Each run's own order is known, so that only the
// cells of the other run that go before have to be counted; of equals those of the left run do.
uint merged(uint at, uint line, uint length, uint run) {
    uint key = CELL(at).x, inside = at - line, both = inside / run / 2u * 2u * run;
    bool left = inside - both < run;
    uint high = line + min(length, left ? both + 2u * run : both + run);
    uint first = min(high, line + (left ? both + run : both)), low = first;
    while (low < high) {
        uint middle = (low + high) / 2u, other = CELL(middle).x;
        if (other < key || (other == key && !left))
            low = middle + 1u;
        else
            high = middle;
    }
    return at - (left ? 0u : run) + (low - first);
}
#endif

#if STEP == MERGE
#include "grid.glsl"

void main() {
    EACH(i, push.count) to[push.to + merged(i, i / push.width * push.width, push.width, push.run)] = CELL(i);
}

#else
#define PARAMS uint to; uint width; uint flip; uint groups; int size; uint site;
#include "grid.glsl"
#include "view.glsl"

layout(binding = 1) readonly buffer Keys { uint keys[]; };
#if KEYS == INDEX
#define STATUS 2
#include "status.glsl"
#endif

// Words whose unsigned order is that of the elements: NaN is the largest, and -0 equals 0.
uint ordered(uint word) {
#if KEYS == FLOAT32
    if ((word & 0x7FFFFFFFu) > 0x7F800000u) return 0xFFFFFFFFu;
    if (word == 0x80000000u) return word;
    return word ^ ((word >> 31) != 0u ? 0xFFFFFFFFu : 0x80000000u);
#elif KEYS == INT32
    return word ^ 0x80000000u;
#elif KEYS == INDEX
    if (word < uint(push.size)) return word;
    report(push.site, int(word), push.size);
    return 0xFFFFFFFFu;
#else
    return word;
#endif
}

// The second view is none of memory: its cells are the payloads.
uvec2 loaded(uint i) { return uvec2(ordered(keys[cell(0, i)]) ^ push.flip, uint(cell(1, i))); }

#if STEP == RUNS
const uint RUN = 8u;

void main() {
    uint per_line = (push.width + RUN - 1u) / RUN;
    EACH(t, push.groups) {
        uint line = t / per_line * push.width, start = line + t % per_line * RUN;
        uint size = min(RUN, line + push.width - start);
        uvec2 mine[RUN];
        for (uint k = 0u; k < RUN; ++k) mine[k] = k < size ? loaded(start + k) : uvec2(0xFFFFFFFFu);
        for (uint round = 0u; round < RUN; ++round)  // only neighbours change places, so that equals never do
            for (uint k = round & 1u; k + 1u < RUN; k += 2u) {
                uvec2 a = mine[k], b = mine[k + 1u];
                bool swap = a.x > b.x;
                mine[k] = swap ? b : a;
                mine[k + 1u] = swap ? a : b;
            }
        for (uint k = 0u; k < size; ++k) to[push.to + start + k] = mine[k];
    }
}

#else
const uint EACH_LANE = 4u;  // CHUNK is so many times the workgroup's size

void sort_chunk(uint start, uint size, uint line) {  // lines of `line` cells
    uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x;
    for (uint at = lane; at < size; at += lanes) cells[at] = loaded(start + at);
    barrier();
    for (uint run = 1u; run < line; run *= 2u) {
        uvec2 mine[EACH_LANE];
        uint place[EACH_LANE];
        for (uint k = 0u; k < EACH_LANE; ++k) {
            uint at = lane + k * lanes;
            if (at >= size) break;
            mine[k] = cells[at];
            place[k] = merged(at, at / line * line, line, run);
        }
        barrier();
        for (uint k = 0u; k < EACH_LANE; ++k)
            if (lane + k * lanes < size) cells[place[k]] = mine[k];
        barrier();
    }
    for (uint at = lane; at < size; at += lanes) to[push.to + start + at] = cells[at];
    barrier();
}

// A workgroup takes several short lines, or a part of a long one.
void main() {
    for (uint g = gl_WorkGroupID.x; g < push.groups; g += gl_NumWorkGroups.x) {
        if (push.width <= CHUNK) {
            uint span = CHUNK / push.width * push.width;
            sort_chunk(g * span, min(span, push.count - g * span), push.width);
        } else {
            uint parts = (push.width + CHUNK - 1u) / CHUNK, part = g % parts;
            uint start = g / parts * push.width + part * CHUNK;
            uint size = min(CHUNK, push.width - part * CHUNK);
            sort_chunk(start, size, size);
        }
    }
}
#endif
#endif
